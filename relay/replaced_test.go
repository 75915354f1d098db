package relay_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// TestReplacedDatabaseEndsTheRelay: the relay ends with the next heartbeat, and not when its leases would have expired. It
// waits for a call in progress, but does not record its outcome.
func TestReplacedDatabaseEndsTheRelay(t *testing.T) {
	t.Parallel()
	for _, reason := range []error{store.ErrReplaced, store.ErrRepartitioned} {
		t.Run(reason.Error(), func(t *testing.T) {
			t.Parallel()
			replacedDatabase(t, reason)
		})
	}
}

func replacedDatabase(t *testing.T, reason error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var replaced, told atomic.Bool
		var calls, settledSince atomic.Int64
		b := faulty(t, func(op string, done bool) error {
			switch {
			case !replaced.Load() || done:
			case op == "Settle" && told.Load():
				settledSince.Add(1)
			case op == "Heartbeat":
				told.Store(true)
				return fmt.Errorf("heartbeat: %w", reason)
			}
			return nil
		})
		r, err := relay.New(b.store, relay.Config{Name: "r", LeaseTTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		called := make(chan struct{})
		err = r.HandleFunc("t", func(context.Context, *postrider.Message) error {
			calls.Add(1)
			close(called)
			time.Sleep(15 * time.Second)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- r.Run(t.Context()) }()
		b.publish(&postrider.Message{ID: "1", Type: "t", Key: "k"}, &postrider.Message{ID: "2", Type: "t", Key: "k"})
		<-called
		replaced.Store(true)
		began := time.Now()
		select {
		case err := <-ended:
			if !errors.Is(err, reason) {
				t.Errorf("the relay ended with %v, want %v", err, reason)
			}
		case <-time.After(time.Minute):
			t.Error("the relay works on a minute after its database was replaced")
			_ = r.Stop(t.Context())
		}
		if took := time.Since(began); took > 20*time.Second || calls.Load() != 1 || settledSince.Load() != 0 {
			t.Errorf("ended after %s, with %d calls and %d settlements; want one call that is waited for, and none", took, calls.Load(), settledSince.Load())
		}
	})
}
