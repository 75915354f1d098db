package relay_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// attemptsAt records when each message was attempted, and fails every attempt.
type attemptsAt struct {
	began time.Time
	at    map[string][]time.Duration
	max   map[string]int
}

func newAttempts() *attemptsAt {
	return &attemptsAt{began: time.Now(), at: make(map[string][]time.Duration), max: make(map[string]int)}
}

func (a *attemptsAt) fail(ctx context.Context, m *postrider.Message) error {
	a.at[m.ID] = append(a.at[m.ID], time.Since(a.began).Round(time.Second))
	a.max[m.ID] = postrider.MaxAttemptsFromContext(ctx)
	return errBoom
}

// TestPolicyByType: a fixed and a custom wait, and the number of attempts, of their types; handlers are told the number.
func TestPolicyByType(t *testing.T) {
	t.Parallel()
	for _, transactions := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b, a := setup(t), newAttempts()
			fixed, custom, plain := b.msg("a"), b.msg("b"), b.msg("c")
			fixed.Type, custom.Type, plain.Type = "invoice.sent", "order.placed", "t"
			b.publish(fixed, custom, plain)
			r := b.relay(relay.Config{
				MaxAttempts: 2, BackoffBase: time.Millisecond, BackoffMax: time.Millisecond,
				Policies: []relay.Policy{
					{Types: []string{"invoice.*"}, MaxAttempts: 3, Wait: relay.Fixed(10 * time.Second)},
					{Types: []string{"order.placed"}, MaxAttempts: 4, Wait: func(attempt int, err error) time.Duration {
						if !errors.Is(err, errBoom) {
							t.Errorf("the policy was asked about %v", err)
						}
						return time.Duration(attempt) * time.Minute
					}},
				},
			})
			for _, messageType := range []string{"invoice.sent", "order.placed", "t"} {
				if transactions {
					must(t, relay.HandleTxFunc(r, messageType, func(ctx context.Context, _ *memory.Tx, m *postrider.Message) error { return a.fail(ctx, m) }))
				} else {
					must(t, r.HandleFunc(messageType, a.fail))
				}
			}
			b.start(r)
			pass(time.Hour)
			for _, c := range []struct {
				m    *postrider.Message
				want []time.Duration
			}{
				{fixed, []time.Duration{0, 10 * time.Second, 20 * time.Second}},
				{custom, []time.Duration{0, time.Minute, 3 * time.Minute, 6 * time.Minute}},
				{plain, []time.Duration{0, 0}},
			} {
				at := a.at[c.m.ID]
				if !slices.Equal(at, c.want) || a.max[c.m.ID] != len(c.want) {
					t.Errorf("transactions %t: %s: attempts at %v of %d, want %v", transactions, c.m.Type, at, a.max[c.m.ID], c.want)
				}
			}
			if st := b.status(); st.Dead.N != 3 {
				t.Errorf("%d dead letters, want 3", st.Dead.N)
			}
		})
	}
}

// TestRetryOfAHandlerComesBeforeThePolicy: what a handler asks for itself is not the policy's.
func TestRetryOfAHandlerComesBeforeThePolicy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, a := setup(t), newAttempts()
		b.publish(b.msg("a"))
		r := b.relay(relay.Config{MaxAttempts: 2, Policies: []relay.Policy{{Wait: relay.Fixed(time.Second)}}})
		handle(t, r, func(ctx context.Context, m *postrider.Message) error {
			return postrider.Retry(time.Hour, a.fail(ctx, m))
		})
		b.start(r)
		pass(2 * time.Hour)
		if at := a.at["m001"]; !slices.Equal(at, []time.Duration{0, time.Hour}) {
			t.Errorf("attempts at %v", at)
		}
	})
}

// TestIgnoredErrorDiscards: errors that the policy of a type ignores discard the message, and no others; the failed attempt counts.
func TestIgnoredErrorDiscards(t *testing.T) {
	t.Parallel()
	gone := errors.New("the order is gone")
	answer := func(_ context.Context, m *postrider.Message) error {
		switch m.Key {
		case "gone":
			return gone
		case "unavailable": // a decision of the handler: not asked about
			return postrider.Snooze(time.Hour)
		}
		return errBoom
	}
	for name, prepare := range everyWay {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				b.publish(b.msgs("gone", "gone", "other", "unavailable")...)
				r := prepare(b, relay.Config{MaxAttempts: 3, OnDead: relay.HoldKey, Policies: []relay.Policy{
					{Types: []string{"other"}, Discard: func(error) bool { return true }},
					{Discard: func(err error) bool { return errors.Is(err, gone) }},
				}}, answer)
				b.start(r)
				pass(5 * time.Minute)
				st := b.status()
				if st.Dead.N != 1 || st.Failed != 5 || st.Held.N != 2 || st.Parked.N != 1 {
					t.Errorf("status: dead %d, failed %d, held %d, parked %d", st.Dead.N, st.Failed, st.Held.N, st.Parked.N)
				}
				var ids []string
				for l, err := range deadletter.New(b.store).ListDead(t.Context(), store.DeadFilter{State: store.DeadDiscarded}, 0, 0) {
					must(t, err)
					if l.Reason != relay.IgnoredError || l.Cause != gone.Error() || l.ResolvedBy != "r" {
						t.Errorf("discarded: %+v", l)
					}
					ids = append(ids, l.Message.ID)
				}
				want(t, "discarded", ids, []string{"m001", "m002"})
			})
		})
	}
}

// TestStopIsNotAnIgnoredError: the error of a call that was cut off by a stop discards nothing.
func TestStopIsNotAnIgnoredError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, j := setup(t), &journal{}
		b.publish(b.msg("a"))
		r := b.relay(relay.Config{StopTimeout: time.Second, Policies: []relay.Policy{{Discard: func(error) bool { return true }}}})
		handle(t, r, func(ctx context.Context, _ *postrider.Message) error { <-ctx.Done(); return errBoom })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		pass(time.Second)
		cancel()
		if err := <-ended; err == nil {
			t.Error("Run cut nothing off")
		}
		next := b.relay(relay.Config{})
		handle(t, next, j.take)
		b.start(next)
		pass(time.Minute)
		want(t, "delivered after the stop", j.of("a"), []string{"m001"})
	})
}

// TestPanicOfAPolicyIsAFailedAttempt: it ends no worker, and the cause has the stack.
func TestPanicOfAPolicyIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]relay.Policy{
		"Wait":    {Wait: func(int, error) time.Duration { panic("no wait") }},
		"Discard": {Discard: func(error) bool { panic("no decision") }},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, a := setup(t), newAttempts()
			b.publish(b.msg("a"))
			r := b.relay(relay.Config{MaxAttempts: 2, Policies: []relay.Policy{p}})
			handle(t, r, a.fail)
			b.start(r)
			pass(time.Hour)
			for l, err := range deadletter.New(b.store).ListDead(t.Context(), store.DeadFilter{}, 0, 0) {
				must(t, err)
				if !strings.Contains(l.Cause, "a function of the policy: no ") || !strings.Contains(l.Cause, "policy_test.go") {
					t.Errorf("%s: cause %q", name, l.Cause)
				}
			}
			if st := b.status(); st.Dead.N != 1 || st.Failed != 2 {
				t.Errorf("%s: dead %d, failed %d", name, st.Dead.N, st.Failed)
			}
		})
	}
}

func TestPoliciesAreChecked(t *testing.T) {
	t.Parallel()
	_, err := relay.New(memory.New(memory.Config{}), relay.Config{
		Name: "r", MaxRate: -1, Policies: []relay.Policy{{MaxAttempts: -1}, {Types: []string{""}}},
	})
	for _, part := range []string{"MaxRate must not", "MaxAttempts of policy 0", "Types of policy 1"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v lacks %q", err, part)
		}
	}
}
