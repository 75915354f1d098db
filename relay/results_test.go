package relay_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// frail is an error whose methods fail on a nil pointer.
type frail struct{ text string }

func (e *frail) Error() string { return e.text }

// TestErrorWhoseTextPanicsIsAFailure: a handler returns a nil pointer as an error, the classic mistake. It counts as a
// failure, and the dead letter says what is wrong.
func TestErrorWhoseTextPanicsIsAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.publish(b.msg("k"))
		r := b.relay(relay.Config{MaxAttempts: 2})
		handle(t, r, func(context.Context, *postrider.Message) error {
			var e *frail
			return e
		})
		b.start(r)
		pass(time.Minute)
		n := 0
		for l, err := range deadletter.New(b.store).ListDead(t.Context(), store.DeadFilter{}, 0, 0) {
			if err != nil {
				t.Fatal(err)
			}
			n++
			if !strings.Contains(l.Cause, "*relay_test.frail") {
				t.Errorf("the cause does not name the error's type: %.200s", l.Cause)
			}
		}
		if n != 1 {
			t.Errorf("%d dead letters after two attempts, want 1", n)
		}
		b.wantNothingLeft(r)
	})
}

// TestHandlerThatReportsPredecessorFailedIsRetriedWithBackoff: a handler that forwards to a publisher may return that publisher's
// ErrPredecessorFailed. To the relay it is the message's own failure, retried after a wait and counted.
func TestHandlerThatReportsPredecessorFailedIsRetriedWithBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.publish(b.msg("k"))
		r := b.relay(relay.Config{})
		const most = 100
		calls := 0
		handle(t, r, func(_ context.Context, m *postrider.Message) error {
			if calls++; calls > most {
				return nil // for a relay that calls without a wait: virtual time would not advance
			}
			return postrider.PredecessorFailed(m, errBoom)
		})
		b.start(r)
		pass(time.Second)
		unrecorded := int64(calls) - b.status().Failed // the last one may be
		if st := b.status(); calls > most || unrecorded < 0 || unrecorded > 1 || st.Held.N != 1 {
			t.Errorf("%d calls in a second, %d counted as failed, %d keys held; want few, all of them, and 1", calls, st.Failed, st.Held.N)
		}
	})
}

// TestDelayedMessageWithoutAHandlerIsKept: the time for which a message was delayed does not count towards UnhandledFor,
// which starts when a handler was first looked up for it.
func TestDelayedMessageWithoutAHandlerIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		m := b.msg("k")
		m.Type, m.DeliverAfter = "new", 30*time.Minute
		b.publish(m)
		r := b.relay(relay.Config{UnhandledFor: 10 * time.Minute})
		handle(t, r, j.take)
		b.start(r)
		pass(35 * time.Minute)
		if st := b.status(); st.Dead.N != 0 || st.Held.N != 1 {
			t.Errorf("5 minutes after its time, with UnhandledFor 10 minutes: dead %d, keys held %d; want 0 and 1", st.Dead.N, st.Held.N)
		}
		pass(20 * time.Minute)
		if st := b.status(); st.Dead.N != 1 {
			t.Errorf("25 minutes after its time, with UnhandledFor 10 minutes: dead %d, want 1", st.Dead.N)
		}
	})
}

// TestHandlerThatChangesTheKeyChangesNothingHere: an interceptor changes the key of the message that it passes on. The relay
// holds the key under which the message was published.
func TestHandlerThatChangesTheKeyChangesNothingHere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		rename := func(next postrider.Handler) postrider.Handler {
			return func(ctx context.Context, m *postrider.Message) error {
				m.Key = "tenant/" + m.Key
				m.Sequence = -m.Sequence
				return next(ctx, m)
			}
		}
		r := b.relay(relay.Config{Interceptors: []relay.Interceptor{rename}})
		handle(t, r, func(ctx context.Context, m *postrider.Message) error {
			if m.ID == "m001" && m.Attempt == 1 {
				return postrider.Retry(time.Minute, errBoom)
			}
			return j.take(ctx, m)
		})
		b.start(r)
		b.publish(b.msg("k"))
		pass(time.Second)
		b.publish(b.msg("k"))
		pass(10 * time.Minute)
		want(t, "delivered", j.of("tenant/k"), []string{"m001", "m002"})
		b.wantNothingLeft(r)
	})
}

// TestMessageAfterAnUndecodableOneWaitsWithItsKey: an undecodable row is dead-lettered, and OnDead holds its key. The message
// after it in the same batch is published once, after the operator's decision.
func TestMessageAfterAnUndecodableOneWaitsWithItsKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, k := setup(t), &broker{}
		b.publishUndecodable(b.msg("k"), b.msg("k"), b.msg("other"))
		r := b.relay(relay.Config{OnDead: relay.HoldKey, Publisher: k})
		b.start(r)
		pass(10 * time.Minute)
		want(t, "after the dead message of a held key", k.of("k"), nil)
		want(t, "other key", k.of("other"), []string{"m003"})
		if err := decide(b.store, "k", store.VerbSkip); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Minute)
		want(t, "after the decision", k.of("k"), []string{"m002"})
		b.wantNothingLeft(r)
	})
}
