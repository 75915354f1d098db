package memory

import (
	"context"
	"slices"
	"time"

	"github.com/postrider/postrider/store"
)

var _ store.SagaRecords[*Tx] = (*Store)(nil)

func recordLock(participant string, step store.SagaStep) lock {
	return lock{sagaRecord, participant, step.Run + "\x00" + step.Step}
}

// record returns a record as this transaction sees it.
func (tx *Tx) record(l lock, step store.SagaStep) store.SagaRecord {
	r, ok := tx.db.sagas.records[l]
	if own, written := tx.written(l); written {
		r, ok = own.(store.SagaRecord), true
	}
	if !ok || r.State == store.SagaStepNone {
		return store.SagaRecord{SagaStep: step}
	}
	r.Command, r.Reply = slices.Clone(r.Command), slices.Clone(r.Reply)
	return r
}

func (tx *Tx) putRecord(l lock, r store.SagaRecord) {
	tx.write(l, r, func(db *database, _ time.Time) {
		if r.State == store.SagaStepNone {
			delete(db.sagas.records, l)
			return
		}
		db.sagas.records[l] = r
	})
}

// LockSagaRecords implements store.SagaRecords.
func (s *Store) LockSagaRecords(ctx context.Context, tx *Tx, participant string, steps []store.SagaStep) ([]store.SagaRecord, time.Time, error) {
	var at time.Time
	records, err := inTx(ctx, s, "LockSagaRecords", tx, func(*database) (out []store.SagaRecord, _ error) {
		var locks []lock
		for _, step := range steps {
			locks = append(locks, recordLock(participant, step))
		}
		if err := tx.acquireAll(slices.Clone(locks)); err != nil {
			return nil, err
		}
		at = now()
		for i, step := range steps {
			out = append(out, tx.record(locks[i], step))
		}
		return out, nil
	})
	return records, at, err
}

// SaveSagaRecords implements store.SagaRecords.
func (s *Store) SaveSagaRecords(ctx context.Context, tx *Tx, participant string, records []store.SagaRecord) error {
	_, err := inTx(ctx, s, "SaveSagaRecords", tx, func(*database) (struct{}, error) {
		called := now()
		for _, r := range records {
			l := recordLock(participant, r.SagaStep)
			if err := tx.acquire(l); err != nil {
				return struct{}{}, err
			}
			r.Closed, r.SavedAt, r.FirstSentAt = tx.record(l, r.SagaStep).Closed, called, stamp(r.FirstSentAt)
			r.Command, r.Reply = slices.Clone(r.Command), slices.Clone(r.Reply)
			tx.putRecord(l, r)
		}
		return struct{}{}, nil
	})
	return err
}

// CloseSagaRuns implements store.SagaRecords.
func (s *Store) CloseSagaRuns(ctx context.Context, tx *Tx, participant string, runs []string) error {
	_, err := inTx(ctx, s, "CloseSagaRuns", tx, func(db *database) (struct{}, error) {
		var locks []lock
		for l, r := range db.sagas.records {
			if l.consumer == participant && slices.Contains(runs, r.Run) {
				locks = append(locks, l)
			}
		}
		for _, w := range tx.writes {
			r, is := w.value.(store.SagaRecord)
			if is && w.consumer == participant && slices.Contains(runs, r.Run) && tx.record(w.lock, r.SagaStep).State != store.SagaStepNone {
				locks = append(locks, w.lock)
			}
		}
		if err := tx.acquireAll(locks); err != nil {
			return struct{}{}, err
		}
		for _, l := range slices.Compact(locks) {
			r := tx.record(l, store.SagaStep{})
			r.Closed = true
			tx.putRecord(l, r)
		}
		return struct{}{}, nil
	})
	return err
}
