package held_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

var errRefused = errors.New("refused")

// failing runs a relay whose only key is held, because its handler fails until told otherwise.
func failing(t *testing.T, handle postrider.Handler) (store *memory.Store, stop func()) {
	t.Helper()
	store = memory.New(memory.Config{Partitions: 1})
	tx, err := store.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"m-1", "m-2"} {
		m := &postrider.Message{ID: id, Type: "t", Topic: "t", Key: "order/1", Payload: []byte("{}"), Time: time.Now()}
		if err := store.Insert(t.Context(), tx, []*postrider.Message{m}); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Commit(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	r, err := relay.New(store, relay.Config{
		Name: "r", BackoffBase: time.Hour, BackoffMax: time.Hour, AttemptTimeout: -1, ParkAfter: time.Hour, Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		err = r.HandleFunc("t", handle)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.Run(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return store, stop
}

func decision(verb store.Verb) store.Decision {
	return store.Decision{Relay: "r", Key: "order/1", Verb: verb, By: "ann", Reason: "why"}
}

func TestDecisionWithoutAHolderIsAppliedHere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, stop := failing(t, func(context.Context, *postrider.Message) error { return errRefused })
		time.Sleep(time.Minute)
		stop()
		d, err := held.Decide(t.Context(), s, decision(store.VerbDeadAll))
		if err != nil || d.State != store.DecisionApplied || d.Count != 2 {
			t.Fatalf("decided: %+v, %v", d, err)
		}
		if again, err := held.Decide(t.Context(), s, d); err != nil || again.Count != 2 {
			t.Errorf("decided again: %+v, %v; want the same answer", again, err)
		}
		if n, err := deadletter.New(s).CountDead(t.Context(), store.DeadFilter{}); n != 2 || err != nil {
			t.Errorf("%d dead letters, %v; want both messages, once", n, err)
		}
		view, err := s.Heartbeat(t.Context(), "r", store.Owner{ID: "next"}, time.Minute)
		if err != nil || view.Alive != 1 || len(view.Partitions) != 0 {
			t.Errorf("afterwards: %+v, %v; want nothing held", view, err)
		}
	})
}

// TestDecisionWaitsForTheCallThatIsOut: the call in flight delivers the message, so the decision comes too late.
func TestDecisionWaitsForTheCallThatIsOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		release := make(chan struct{})
		s, _ := failing(t, func(_ context.Context, m *postrider.Message) error {
			if calls.Add(1) == 1 {
				return errRefused
			}
			<-release
			return nil
		})
		time.Sleep(time.Second)
		if _, err := held.Decide(t.Context(), s, decision(store.VerbRetry)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // the second attempt is in flight
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		d := decision(store.VerbDeadAll)
		d.ID = "d-1"
		if _, err := held.Decide(ctx, s, d); !errors.Is(err, held.ErrNotApplied) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("decided while the call is out: %v, want %v", err, held.ErrNotApplied)
		}
		close(release)
		if _, err := held.Decide(t.Context(), s, d); !errors.Is(err, held.ErrRefused) && err != nil {
			t.Errorf("decided after the call: %v", err)
		}
		time.Sleep(time.Minute)
		if dead, err := deadletter.New(s).CountDead(t.Context(), store.DeadFilter{MessageID: "m-1"}); dead != 0 || err != nil {
			t.Errorf("the message was delivered and has %d dead letters, %v", dead, err)
		}
	})
}

func TestDecisionNeedsAHeldKey(t *testing.T) {
	t.Parallel()
	s := memory.New(memory.Config{})
	if _, err := held.Decide(t.Context(), s, decision(store.VerbSkip)); !errors.Is(err, store.ErrNotHeld) {
		t.Errorf("got %v, want %v", err, store.ErrNotHeld)
	}
}

// deciding is a store whose role may record decisions and not lease partitions.
type deciding struct {
	*memory.Store
	leased *int
}

func (d deciding) Acquire(context.Context, string, store.Owner, store.AcquireRequest) ([]store.Lease, error) {
	*d.leased++
	return nil, store.ErrDenied
}

// TestOperatorWithoutTheRightToLeaseWaits: the relay applies the decision, and Decide tries to lease once at most.
func TestOperatorWithoutTheRightToLeaseWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, stop := failing(t, func(context.Context, *postrider.Message) error { return errRefused })
		time.Sleep(time.Minute)
		tried := 0
		d, err := held.Decide(t.Context(), deciding{s, &tried}, decision(store.VerbRetry))
		if err != nil || d.State != store.DecisionApplied || tried > 1 {
			t.Errorf("decision %+v, %v, after %d attempts to lease", d, err, tried)
		}
		stop()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := held.Decide(ctx, deciding{s, &tried}, decision(store.VerbRetry)); !errors.Is(err, held.ErrNotApplied) || errors.Is(err, store.ErrDenied) {
			t.Errorf("without a relay: %v, want ErrNotApplied", err)
		}
	})
}
