package memory

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/store"
)

var _ store.SagaRecords[*Tx] = (*Store)(nil)

func recordLock(participant string, step store.SagaStep) lock {
	return lock{sagaRecord, participant, step.Run + "\x00" + step.Step}
}

// participantRun is a run, of which a participant has records.
type participantRun struct{ participant, run string }

// record returns a record as this transaction sees it.
func (tx *Tx) record(participant string, step store.SagaStep) store.SagaRecord {
	r, ok := tx.db.sagas.records[participantRun{participant, step.Run}][step.Step]
	if own, written := tx.written(recordLock(participant, step)); written {
		r, ok = own.(store.SagaRecord), true
	}
	if !ok || r.State == store.SagaStepNone {
		return store.SagaRecord{SagaStep: step}
	}
	r.Command, r.Reply = slices.Clone(r.Command), slices.Clone(r.Reply)
	return r
}

func (tx *Tx) putRecord(participant string, r store.SagaRecord) {
	tx.write(recordLock(participant, r.SagaStep), r, func(db *database, _ time.Time) {
		if r.State == store.SagaStepNone {
			db.sagas.removeRecord(participant, r.SagaStep)
			return
		}
		of := participantRun{participant, r.Run}
		if db.sagas.records[of] == nil {
			db.sagas.records[of] = make(map[string]store.SagaRecord)
		}
		db.sagas.records[of][r.Step] = r
	})
}

func (s *sagas) removeRecord(participant string, step store.SagaStep) {
	of := participantRun{participant, step.Run}
	if delete(s.records[of], step.Step); len(s.records[of]) == 0 {
		delete(s.records, of)
	}
}

// LockSagaRecords implements store.SagaRecords.
func (s *Store) LockSagaRecords(ctx context.Context, tx *Tx, participant string, steps []store.SagaStep) ([]store.SagaRecord, time.Time, error) {
	var at time.Time
	records, err := inTx(ctx, s, "LockSagaRecords", tx, func(*database) (out []store.SagaRecord, _ error) {
		var locks []lock
		for _, step := range steps {
			locks = append(locks, recordLock(participant, step))
		}
		if err := tx.acquireAll(locks); err != nil {
			return nil, err
		}
		at = now()
		for _, step := range steps {
			out = append(out, tx.record(participant, step))
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
			if err := tx.acquire(recordLock(participant, r.SagaStep)); err != nil {
				return struct{}{}, err
			}
			r.Closed, r.SavedAt, r.FirstSentAt = tx.record(participant, r.SagaStep).Closed, called, stamp(r.FirstSentAt)
			r.Command, r.Reply = slices.Clone(r.Command), slices.Clone(r.Reply)
			tx.putRecord(participant, r)
		}
		return struct{}{}, nil
	})
	return err
}

// CloseSagaRuns implements store.SagaRecords.
func (s *Store) CloseSagaRuns(ctx context.Context, tx *Tx, participant string, runs []string) error {
	_, err := inTx(ctx, s, "CloseSagaRuns", tx, func(db *database) (struct{}, error) {
		steps := make(map[lock]store.SagaStep)
		for _, run := range runs {
			for _, r := range db.sagas.records[participantRun{participant, run}] {
				steps[recordLock(participant, r.SagaStep)] = r.SagaStep
			}
		}
		for _, w := range tx.writes {
			r, is := w.value.(store.SagaRecord)
			if is && w.consumer == participant && slices.Contains(runs, r.Run) && tx.record(participant, r.SagaStep).State != store.SagaStepNone {
				steps[w.lock] = r.SagaStep
			}
		}
		if err := tx.acquireAll(slices.Collect(maps.Keys(steps))); err != nil {
			return struct{}{}, err
		}
		for _, step := range steps {
			r := tx.record(participant, step)
			r.Closed = true
			tx.putRecord(participant, r)
		}
		return struct{}{}, nil
	})
	return err
}
