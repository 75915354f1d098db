package relay_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// later handles messages whose outcome another system knows later: it asks for it once a minute until there is an answer.
type later struct {
	journal
	mu      sync.Mutex
	answers map[string]error
	asked   map[string]int
}

func newLater() *later { return &later{answers: make(map[string]error), asked: make(map[string]int)} }

func (l *later) handle(_ context.Context, m *postrider.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err, answered := l.answers[m.ID]
	if !answered {
		l.asked[m.ID]++
		return postrider.Snooze(time.Minute)
	}
	l.note(m)
	return err
}

func (l *later) answer(id string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[id] = err
}

// TestOutcomeLater: an outcome that is known later, in another process too, is that of its message, once and in order.
func TestOutcomeLater(t *testing.T) {
	t.Parallel()
	dead := postrider.Dead("refused by the bank", nil)
	tests := map[string]struct {
		// decide says that somebody ends the wait when the answer has come; restart, that a new process takes over before.
		decide, restart bool
		outcome         error
		within          time.Duration
	}{
		"delivered at once":                    {decide: true, within: time.Second},
		"delivered by another process":         {decide: true, restart: true, within: time.Second},
		"dead-lettered by another process":     {decide: true, restart: true, outcome: dead, within: time.Second},
		"delivered although nobody decides":    {within: 2 * time.Minute},
		"delivered by another process, nobody": {restart: true, within: 2 * time.Minute},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, l := setup(t), newLater()
				b.publish(b.msgs("k", "k")...)
				l.answer("m002", nil)
				begin := func() (stop func()) {
					r := b.relay(relay.Config{MaxAttempts: 1})
					handle(t, r, l.handle)
					return b.start(r)
				}
				stop := begin()
				pass(10 * time.Minute)
				want(t, "before the answer", l.of("k"), nil)
				if tt.restart {
					stop()
				}
				l.answer("m001", tt.outcome)
				if tt.decide {
					if err := decide(b.store, "k", store.VerbRetry); err != nil {
						t.Fatal(err)
					}
				}
				if tt.restart {
					begin()
				}
				pass(tt.within)
				want(t, "after the answer", l.of("k"), []string{"m001", "m002"})
				if n := b.status().Dead.N; n != 0 && tt.outcome == nil || n != 1 && tt.outcome != nil {
					t.Errorf("%d dead letters", n)
				}
				if l.asked["m001"] < 5 || l.asked["m002"] != 0 {
					t.Errorf("asked %v", l.asked)
				}
			})
		})
	}
}

// TestOutcomeBeforeItsMessageIsParked: an answer that is faster than the relay ends no wait, and is found at the next attempt.
func TestOutcomeBeforeItsMessageIsParked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, l := setup(t), newLater()
		r := b.relay(relay.Config{})
		handle(t, r, func(ctx context.Context, m *postrider.Message) error {
			err := l.handle(ctx, m)
			if l.asked[m.ID] == 1 && len(l.of("k")) == 0 {
				l.answer(m.ID, nil)
				if err := decide(b.store, "k", store.VerbRetry); !errors.Is(err, store.ErrNotHeld) {
					t.Errorf("a decision about a message that is not parked: %v", err)
				}
			}
			return err
		})
		b.start(r)
		b.publish(b.msg("k"))
		pass(2 * time.Minute)
		want(t, "delivered", l.of("k"), []string{"m001"})
		b.wantNothingLeft(r)
	})
}
