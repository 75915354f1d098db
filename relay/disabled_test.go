package relay_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/relay"
)

// TestDisabledRelayDoesNothing: a relay that is switched off takes no part in the work of its processes, and loses nothing. Switched on, it
// goes on where it was.
func TestDisabledRelayDoesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		on := func(disabled bool) (stop func()) {
			r := b.relay(relay.Config{Disabled: disabled})
			handle(t, r, j.take)
			stop = b.start(r)
			pass(time.Minute)
			if err := r.Ready(); err != nil {
				t.Errorf("disabled %t: %v", disabled, err)
			}
			return stop
		}
		on(false)()
		stop := on(true)
		b.publish(b.msgs("k", "k")...)
		pass(time.Hour)
		if st := b.status(); st.Backlog.N != 2 || j.len() != 0 {
			t.Errorf("switched off: backlog %d, delivered %d", st.Backlog.N, j.len())
		}
		for _, o := range b.status().Owners {
			if o.Alive {
				t.Errorf("switched off, a process counts as alive: %+v", o)
			}
		}
		stop()
		on(false)
		want(t, "switched on again", j.of("k"), []string{"m001", "m002"})
	})
}

// TestDisabledRelayNeedsNoDestination: a publisher need not be reachable, or there at all.
func TestDisabledRelayNeedsNoDestination(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		r := b.relay(relay.Config{Disabled: true})
		ended := make(chan error, 1)
		go func() { ended <- r.Run(t.Context()) }()
		pass(time.Minute)
		if err := r.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
