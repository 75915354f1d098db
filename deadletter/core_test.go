package deadletter_test

import (
	"context"
	"testing"

	"github.com/postrider/postrider/deadletter"
)

// between is a store where another process takes a step of a redrive between two reads.
type between struct {
	deadletter.Records
	deadletter.Reader
}

func (b between) View(_ context.Context, _ deadletter.Operation, f func(deadletter.Reader) error) error {
	return f(b)
}

func (b between) Redrive(_ context.Context, id int64) (deadletter.Redrive, error) {
	return deadletter.Redrive{ID: id, Done: 100}, nil
}

func (b between) Redriven(context.Context, int64) (parked, dead int64, err error) { return 199, 1, nil }

func TestOutcomeDuringAStepIsNotNegative(t *testing.T) {
	r, err := deadletter.New(between{}).ShowRedrive(t.Context(), 7)
	if err != nil || r.Outcome == nil || *r.Outcome != (deadletter.Outcome{Waiting: 199, Failed: 1}) {
		t.Errorf("outcome %+v, %v; want 199 waiting, 1 failed", r.Outcome, err)
	}
}
