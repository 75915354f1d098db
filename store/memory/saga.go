package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.SagaStore[*Tx] = (*Store)(nil)

// sagas is what the database stores about sagas.
type sagas struct {
	rows    map[string]*sagaRow               // by run
	history map[string][]store.SagaTransition // by run
	names   map[lock]string                   // the run that has an ID, holds a key or has an alias

	definitions []store.SagaDefinition // in the order of SagaReader.SagaDefinitions, without Processes
	reports     map[reporter]report
	records     map[participantRun]map[string]store.SagaRecord // by step
}

// sagaRow is an instance. A row is never changed, but replaced.
type sagaRow struct {
	store.SagaInstance
	aliases []store.SagaAlias
	labels  map[string]string
}

// Kinds of locks and writes for sagas.
const (
	sagaRun    = "saga run"    // name: the run
	sagaID     = "saga ID"     // name: the ID
	sagaKey    = "saga key"    // consumer: the saga, name: the key
	sagaAlias  = "saga alias"  // consumer: the saga, name: the alias
	sagaRecord = "saga record" // consumer: the participant, name: run and step
)

func newSagas() *sagas {
	return &sagas{
		rows: make(map[string]*sagaRow), history: make(map[string][]store.SagaTransition), names: make(map[lock]string),
		reports: make(map[reporter]report), records: make(map[participantRun]map[string]store.SagaRecord),
	}
}

func runLock(run string) lock { return lock{sagaRun, "", run} }

func idLock(id string) lock { return lock{sagaID, "", id} }

func keyLock(saga, key string) lock { return lock{sagaKey, saga, key} }

func aliasLock(saga string, a store.SagaAlias) lock {
	return lock{sagaAlias, saga, a.Name + "\x00" + a.Value}
}

// saga returns an instance as this transaction sees it, or nil.
func (tx *Tx) saga(run string) *sagaRow {
	if own, ok := tx.written(runLock(run)); ok {
		return own.(*sagaRow)
	}
	return tx.db.sagas.rows[run]
}

// runOf returns the run that has a name, as this transaction sees it, or "".
func (tx *Tx) runOf(name lock) string {
	if own, ok := tx.written(name); ok {
		return own.(string)
	}
	return tx.db.sagas.names[name]
}

// name gives a name to a run; "" takes it away.
func (tx *Tx) name(name lock, run string) {
	tx.write(name, run, func(db *database, _ time.Time) {
		if run == "" {
			delete(db.sagas.names, name)
			return
		}
		db.sagas.names[name] = run
	})
}

// putSaga writes an instance and its latest transitions.
func (tx *Tx) putSaga(row *sagaRow, transitions []store.SagaTransition) {
	tx.write(runLock(row.Run), row, func(db *database, _ time.Time) {
		db.sagas.rows[row.Run] = row
		db.sagas.history[row.Run] = append(db.sagas.history[row.Run], transitions...)
	})
}

// acquireAll acquires locks in one order, so that two calls cannot wait for each other.
func (tx *Tx) acquireAll(locks []lock) error {
	slices.SortFunc(locks, compareLocks)
	for _, l := range locks {
		if err := tx.acquire(l); err != nil {
			return err
		}
	}
	return nil
}

// LoadSagas implements store.SagaStore.
func (s *Store) LoadSagas(ctx context.Context, tx *Tx, runs []string) ([]store.SagaInstance, error) {
	runs = slices.Compact(slices.Sorted(slices.Values(runs)))
	return inTx(ctx, s, "LoadSagas", tx, func(*database) (out []store.SagaInstance, _ error) {
		for _, run := range runs {
			if tx.saga(run) == nil {
				continue
			}
			if err := tx.acquire(runLock(run)); err != nil {
				return nil, err
			}
			out = append(out, tx.saga(run).instance(now()))
		}
		return out, nil
	})
}

// instance returns a copy of an instance, as of a time.
func (row *sagaRow) instance(at time.Time) store.SagaInstance {
	out := row.SagaInstance
	out.State, out.Data, out.Age = slices.Clone(row.State), slices.Clone(row.Data), at.Sub(row.StartedAt)
	return out
}

// FindSagas implements store.SagaStore.
func (s *Store) FindSagas(ctx context.Context, tx *Tx, lookups []store.SagaLookup) ([]string, error) {
	return inTx(ctx, s, "FindSagas", tx, func(*database) ([]string, error) {
		out := make([]string, len(lookups))
		for i, l := range lookups {
			switch {
			case l.ID != "":
				out[i] = tx.runOf(idLock(l.ID))
			case l.Key != "":
				out[i] = tx.runOf(keyLock(l.Saga, l.Key))
			default:
				out[i] = tx.runOf(aliasLock(l.Saga, l.Alias))
			}
		}
		return out, nil
	})
}

// CreateSagas implements store.SagaStore.
func (s *Store) CreateSagas(ctx context.Context, tx *Tx, starts []store.SagaStart) ([]*store.SagaInstance, error) {
	return inTx(ctx, s, "CreateSagas", tx, func(*database) ([]*store.SagaInstance, error) {
		var locks []lock
		for _, st := range starts {
			locks = append(locks, runLock(st.Run), idLock(st.ID))
			if st.Key != "" {
				locks = append(locks, keyLock(st.Saga, st.Key))
			}
			locks = append(locks, aliasLocks(st.Saga, st.Aliases)...)
		}
		if err := tx.acquireAll(locks); err != nil {
			return nil, err
		}
		called, existing := now(), make([]*store.SagaInstance, len(starts))
		for i, st := range starts {
			if row := tx.existing(st); row != nil {
				found := row.instance(called)
				existing[i] = &found
			} else if err := tx.create(st, called); err != nil {
				return nil, err
			}
		}
		return existing, nil
	})
}

// existing returns the instance that has the run or ID of a new one, or holds its key.
func (tx *Tx) existing(st store.SagaStart) *sagaRow {
	if row := tx.saga(st.Run); row != nil {
		return row
	}
	run := tx.runOf(idLock(st.ID))
	if run == "" && st.Key != "" {
		run = tx.runOf(keyLock(st.Saga, st.Key))
	}
	return tx.saga(run)
}

func (tx *Tx) create(st store.SagaStart, at time.Time) error {
	row := &sagaRow{SagaInstance: store.SagaInstance{
		SagaIdentity: st.SagaIdentity, SagaCondition: st.SagaCondition, SagaTimes: st.SagaTimes, SagaBody: st.SagaBody,
		Token: st.Token, HoldsKey: st.Key != "", StartedAt: at,
	}}
	tx.name(idLock(st.ID), st.Run)
	if row.HoldsKey {
		tx.name(keyLock(st.Saga, st.Key), st.Run)
	}
	return tx.change(row, 1, []store.SagaTransition{st.Transition}, st.Aliases, st.Labels, at)
}

// SaveSagas implements store.SagaStore.
func (s *Store) SaveSagas(ctx context.Context, tx *Tx, changes []store.SagaChange) error {
	_, err := inTx(ctx, s, "SaveSagas", tx, func(*database) (struct{}, error) {
		var locks []lock
		for _, c := range changes {
			locks = append(locks, runLock(c.Run))
			if row := tx.saga(c.Run); row != nil {
				locks = append(locks, aliasLocks(row.Saga, c.Aliases)...)
			}
		}
		if err := tx.acquireAll(locks); err != nil {
			return struct{}{}, err
		}
		called := now()
		for _, c := range changes {
			before := tx.saga(c.Run)
			if before == nil || c.Rev != before.Rev+int64(len(c.Transitions)) || len(c.Transitions) == 0 {
				return struct{}{}, fmt.Errorf("save run %s in revision %d: %w", c.Run, c.Rev, store.ErrSagaMoved)
			}
			row := *before
			row.SagaCondition, row.SagaTimes, row.SagaBody = c.SagaCondition, c.SagaTimes, c.SagaBody
			if err := tx.change(&row, c.Rev, c.Transitions, c.Aliases, c.Labels, called); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	return err
}

// SetSagaVersion implements store.SagaStore.
func (s *Store) SetSagaVersion(ctx context.Context, tx *Tx, run string, version int, hash string) error {
	_, err := inTx(ctx, s, "SetSagaVersion", tx, func(*database) (struct{}, error) {
		if tx.saga(run) == nil {
			return struct{}{}, store.ErrNoSaga
		}
		if err := tx.acquire(runLock(run)); err != nil {
			return struct{}{}, err
		}
		row := *tx.saga(run)
		row.Version, row.Hash = version, hash
		tx.putSaga(&row, nil)
		return struct{}{}, nil
	})
	return err
}

// change writes a row that nobody else has yet, in a new revision.
func (tx *Tx) change(row *sagaRow, rev int64, transitions []store.SagaTransition, aliases []store.SagaAlias, labels map[string]string, at time.Time) error {
	row.State, row.Data = slices.Clone(row.State), slices.Clone(row.Data)
	row.Detail, row.Waiting = stored.Text(row.Detail), stored.Text(row.Waiting)
	row.Rev, row.UpdatedAt = rev, at
	row.StuckAt = since(row.StuckAt, row.Status == store.SagaStuck, at)
	row.EndedAt = since(row.EndedAt, row.Status.Ended(), at)
	if row.HoldsKey && row.Status.Ended() {
		row.HoldsKey = false
		tx.name(keyLock(row.Saga, row.Key), "")
	}
	row.aliases = slices.Clip(row.aliases)
	for _, a := range aliases {
		switch l := aliasLock(row.Saga, a); tx.runOf(l) {
		case row.Run:
		case "":
			tx.name(l, row.Run)
			row.aliases = append(row.aliases, a)
		default:
			return fmt.Errorf("alias %s %q of run %s: %w", a.Name, a.Value, row.Run, store.ErrSagaAliasTaken)
		}
	}
	row.labels = withLabels(row.labels, labels)
	tx.putSaga(row, storedTransitions(transitions, rev, at))
	return nil
}

// since returns when something that is so now began.
func since(before time.Time, is bool, at time.Time) time.Time {
	switch {
	case !is:
		return time.Time{}
	case before.IsZero():
		return at
	}
	return before
}

func withLabels(labels, changed map[string]string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = make(map[string]string)
	}
	maps.Copy(out, changed)
	maps.DeleteFunc(out, func(_, value string) bool { return value == "" })
	return out
}

// storedTransitions returns transitions as they are stored: the last one has revision rev.
func storedTransitions(transitions []store.SagaTransition, rev int64, at time.Time) []store.SagaTransition {
	out := slices.Clone(transitions)
	for i := range out {
		t := &out[i]
		t.Rev, t.At = rev-int64(len(out)-1-i), at
		t.Note, t.Entries, t.Patch = stored.Text(t.Note), slices.Clone(t.Entries), slices.Clone(t.Patch)
	}
	return out
}

func aliasLocks(saga string, aliases []store.SagaAlias) (out []lock) {
	for _, a := range aliases {
		out = append(out, aliasLock(saga, a))
	}
	return out
}
