package deadletter_test

import (
	"context"
	"testing"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
)

// between is a store where another process takes a step of a redrive between two reads.
type between struct {
	store.Records
	store.Reader
}

func (b between) View(_ context.Context, _ store.Operation, f func(store.Reader) error) error {
	return f(b)
}

func (b between) Redrive(_ context.Context, id int64) (store.Redrive, error) {
	return store.Redrive{ID: id, Done: 100}, nil
}

func (b between) Redriven(context.Context, int64, int64) (store.Redriven, error) {
	return store.Redriven{Found: 200, Parked: 199, Dead: 1}, nil
}

func (b between) ListRecords(context.Context, store.RecordQuery) ([]store.Record, error) {
	return nil, nil
}

func TestOutcomeDuringAStepIsNotNegative(t *testing.T) {
	r, err := deadletter.New(between{}).ShowRedrive(t.Context(), 7)
	if err != nil || r.Outcome == nil || *r.Outcome != (store.RedriveOutcome{Waiting: 199, Failed: 1}) {
		t.Errorf("outcome %+v, %v; want 199 waiting, 1 failed", r.Outcome, err)
	}
}
