package relay_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// decideMessage makes an operator's decision about a parked message of relay r, for which the operator has ten seconds.
func decideMessage(b *bundle, id string, verb store.Verb) (store.Decision, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return held.Decide(ctx, b.store, store.Decision{Relay: "r", MessageID: id, Verb: verb, By: "op", Reason: "decided"})
}

func deadLetters(b *bundle) int64 {
	b.t.Helper()
	n, err := deadletter.New(b.store).CountDead(context.Background(), store.DeadFilter{State: store.DeadAny})
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// TestDecisionsAboutParkedMessages: the process that holds the partition applies them between two attempts.
func TestDecisionsAboutParkedMessages(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, b *bundle, _ bool, handle func(r *relay.Relay, h postrider.Handler)) {
		j, calls := &journal{}, &journal{}
		var healed atomic.Bool
		r := b.relay(relay.Config{MaxAttempts: 100})
		handle(r, func(ctx context.Context, m *postrider.Message) error {
			if calls.note(m); !healed.Load() {
				return postrider.Retry(time.Hour, errBoom)
			}
			return j.take(ctx, m)
		})
		b.start(r)
		retried, skipped, dead, late := b.msg(""), b.msg(""), b.msg(""), b.msg("order/1")
		late.DeliverAfter = 24 * time.Hour
		for _, m := range []*postrider.Message{retried, skipped, dead, late} {
			b.publish(m)
		}
		pass(time.Minute)
		for id, verb := range map[string]store.Verb{skipped.ID: store.VerbSkip, dead.ID: store.VerbDead} {
			if d, err := decideMessage(b, id, verb); err != nil || d.Count != 1 {
				t.Errorf("%s: %+v, %v", verb, d, err)
			}
		}
		healed.Store(true)
		for _, id := range []string{retried.ID, late.ID} {
			if _, err := decideMessage(b, id, store.VerbRetry); err != nil {
				t.Errorf("retry: %v", err)
			}
			pass(5 * time.Second)
		}
		want(t, "delivered", append(j.of(""), j.of("order/1")...), []string{retried.ID, late.ID})
		pass(2 * time.Hour)
		if calls.len() != 5 || j.len() != 2 || deadLetters(b) != 2 { // three fail, and two follow the decisions
			t.Errorf("%d calls, %d delivered, %d dead letters; want 5, 2 and 2", calls.len(), j.len(), deadLetters(b))
		}
		b.wantNothingLeft(r)
	})
}

// TestDecisionAboutAParkedMessageWaitsForItsCall: the call that is out delivers the message, so the decision comes too late.
func TestDecisionAboutAParkedMessageWaitsForItsCall(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, b *bundle, _ bool, handle func(r *relay.Relay, h postrider.Handler)) {
		release := make(chan struct{})
		r := b.relay(relay.Config{AttemptTimeout: -1, ParkAfter: 5 * time.Second})
		handle(r, func(_ context.Context, m *postrider.Message) error {
			if m.Attempt == 1 {
				return postrider.Retry(time.Minute, errBoom)
			}
			<-release
			return nil
		})
		b.start(r)
		m := b.msg("")
		b.publish(m)
		pass(10 * time.Second)
		if _, err := decideMessage(b, m.ID, store.VerbRetry); err != nil {
			t.Fatal(err)
		}
		pass(20 * time.Second) // the second attempt is out, and counts as slow
		if _, err := decideMessage(b, m.ID, store.VerbDead); !errors.Is(err, held.ErrNotApplied) {
			t.Errorf("decided while the call is out: %v, want %v", err, held.ErrNotApplied)
		}
		close(release)
		pass(time.Hour)
		if n := deadLetters(b); n != 0 {
			t.Errorf("the message was delivered and has %d dead letters", n)
		}
		b.wantNothingLeft(r)
	})
}

// TestDecisionComesBeforeTheNextAttempt: a message that is due again at once leaves room for a decision.
func TestDecisionComesBeforeTheNextAttempt(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, b *bundle, _ bool, handle func(r *relay.Relay, h postrider.Handler)) {
		r := b.relay(relay.Config{MaxAttempts: 1 << 20})
		handle(r, func(context.Context, *postrider.Message) error { return postrider.Retry(time.Millisecond, errBoom) })
		b.start(r)
		m := b.msg("")
		b.publish(m)
		pass(time.Second)
		if d, err := decideMessage(b, m.ID, store.VerbSkip); err != nil || d.Count != 1 {
			t.Errorf("skip: %+v, %v", d, err)
		}
		pass(time.Minute)
		b.wantNothingLeft(r)
	})
}

// TestDecisionWaitsForACallOfALostLease: the database crashed while a call was out. The new lease does not decide about the
// message before that call has returned.
func TestDecisionWaitsForACallOfALostLease(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, b *bundle, tx bool, handle func(r *relay.Relay, h postrider.Handler)) {
		if tx {
			t.Skip("the transaction of a lost lease cannot commit")
		}
		release, returned := make(chan struct{}), atomic.Bool{}
		r := b.relay(relay.Config{AttemptTimeout: -1, ParkAfter: 5 * time.Second, LeaseTTL: 5 * time.Minute})
		handle(r, func(context.Context, *postrider.Message) error {
			<-release
			returned.Store(true)
			return nil
		})
		b.start(r)
		m := b.msg("")
		b.publish(m)
		pass(20 * time.Second) // the call counts as slow: the message is parked, and not due
		b.store.Crash()
		pass(30 * time.Second)
		if d, err := decideMessage(b, m.ID, store.VerbDead); !errors.Is(err, held.ErrNotApplied) || returned.Load() {
			t.Errorf("decided while a call is out: %+v, %v", d, err)
		}
		close(release)
		pass(time.Hour)
		b.wantNothingLeft(r)
	})
}
