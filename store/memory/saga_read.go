package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/store"
)

var _ store.SagaReader = (*Store)(nil)

// ShowSaga implements store.SagaReader.
func (s *Store) ShowSaga(ctx context.Context, id string) (store.SagaInstance, error) {
	return do(ctx, s, "ShowSaga", func(db *database) (store.SagaInstance, error) {
		row := db.sagas.rows[cmp.Or(db.sagas.names[idLock(id)], id)]
		if row == nil {
			return store.SagaInstance{}, fmt.Errorf("%w: %s", store.ErrNoSaga, id)
		}
		return row.instance(now()), nil
	})
}

// SagasByID implements store.SagaReader.
func (s *Store) SagasByID(ctx context.Context, ids []string) ([]store.SagaSummary, error) {
	return do(ctx, s, "SagasByID", func(db *database) (out []store.SagaSummary, _ error) {
		for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
			if run := db.sagas.names[idLock(id)]; run != "" {
				out = append(out, db.sagas.rows[run].summary(now()))
			}
		}
		return out, nil
	})
}

// summary returns an instance as lists show it.
func (row *sagaRow) summary(at time.Time) store.SagaSummary {
	return store.SagaSummary{
		SagaIdentity: row.SagaIdentity, SagaCondition: row.SagaCondition, HoldsKey: row.HoldsKey, Rev: row.Rev, Age: at.Sub(row.StartedAt),
		StartedAt: row.StartedAt, UpdatedAt: row.UpdatedAt, StuckAt: row.StuckAt, EndedAt: row.EndedAt,
		DeadlineAt: row.after(row.Deadline), TimerAt: row.after(row.SagaTimes.TimerAt),
	}
}

// after returns the time that is this long after the start; zero for 0.
func (row *sagaRow) after(d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return stamp(row.StartedAt.Add(d))
}

// ListSagas implements store.SagaReader.
func (s *Store) ListSagas(ctx context.Context, f store.SagaFilter, after string, limit int) ([]store.SagaSummary, error) {
	return do(ctx, s, "ListSagas", func(db *database) (out []store.SagaSummary, _ error) {
		at := now()
		for _, run := range slices.Sorted(maps.Keys(db.sagas.rows)) {
			if row := db.sagas.rows[run]; run > after && len(out) < limit && row.matches(f, at) {
				out = append(out, row.summary(at))
			}
		}
		return out, nil
	})
}

func (row *sagaRow) matches(f store.SagaFilter, at time.Time) bool {
	for name, value := range f.Labels {
		if row.labels[name] != value {
			return false
		}
	}
	for _, wanted := range [][2]string{
		{f.Engine, row.Engine}, {f.Saga, row.Saga}, {f.Key, row.Key}, {f.ParentRun, row.ParentRun}, {f.CorrelationID, row.CorrelationID},
		{f.Tenant, row.Tenant}, {f.Cause, row.Cause},
	} {
		if wanted[0] != "" && wanted[0] != wanted[1] {
			return false
		}
	}
	deadline := row.after(row.Deadline)
	return (f.Version == 0 || f.Version == row.Version) &&
		(len(f.Status) == 0 || slices.Contains(f.Status, row.Status)) &&
		strings.Contains(row.Waiting, f.WaitingFor) &&
		(!f.Paused || row.Paused) &&
		(!f.Overdue || row.EndedAt.IsZero() && !deadline.IsZero() && deadline.Before(at)) &&
		at.Sub(row.StartedAt) >= f.OlderThan
}

// SagaNames implements store.SagaReader.
func (s *Store) SagaNames(ctx context.Context, run string) (aliases []store.SagaAlias, labels map[string]string, err error) {
	row, err := do(ctx, s, "SagaNames", func(db *database) (*sagaRow, error) { return db.sagas.rows[run], nil })
	if row == nil {
		return nil, nil, err
	}
	aliases = slices.SortedFunc(slices.Values(row.aliases), func(a, b store.SagaAlias) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Value, b.Value))
	})
	return aliases, maps.Clone(row.labels), nil
}

// SagaHistory implements store.SagaReader.
func (s *Store) SagaHistory(ctx context.Context, run string, after int64, limit int) ([]store.SagaTransition, error) {
	return do(ctx, s, "SagaHistory", func(db *database) (out []store.SagaTransition, _ error) {
		all := db.sagas.history[run]
		for _, t := range all[min(max(int(after), 0), len(all)):] {
			if len(out) == limit {
				break
			}
			t.Entries, t.Patch = slices.Clone(t.Entries), slices.Clone(t.Patch)
			out = append(out, t)
		}
		return out, nil
	})
}

// CountSagas implements store.SagaReader.
func (s *Store) CountSagas(ctx context.Context) ([]store.SagaCount, error) {
	return do(ctx, s, "CountSagas", func(db *database) ([]store.SagaCount, error) {
		type group struct {
			engine, saga string
			version      int
			kind         store.SagaKind
			status       store.SagaStatus
			direction    store.SagaDirection
		}
		at, counts := now(), make(map[group]*store.SagaCount)
		for _, row := range db.sagas.rows {
			if !row.EndedAt.IsZero() {
				continue
			}
			g := group{row.Engine, row.Saga, row.Version, row.Kind, row.Status, row.Direction}
			c := counts[g]
			if c == nil {
				c = &store.SagaCount{Engine: g.engine, Saga: g.saga, Version: g.version, Kind: g.kind, Status: g.status, Direction: g.direction}
				counts[g] = c
			}
			c.Count++
			c.Oldest = max(c.Oldest, at.Sub(row.StartedAt))
		}
		var out []store.SagaCount
		for _, c := range counts {
			out = append(out, *c)
		}
		slices.SortFunc(out, func(a, b store.SagaCount) int {
			return cmp.Or(strings.Compare(a.Engine, b.Engine), strings.Compare(a.Saga, b.Saga), cmp.Compare(a.Version, b.Version),
				strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(string(a.Status), string(b.Status)),
				strings.Compare(string(a.Direction), string(b.Direction)))
		})
		return out, nil
	})
}
