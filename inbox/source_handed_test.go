package inbox

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/attempt"
)

// handOut passes messages on in a call, and returns what the consumer receives, in order, and the call's answer.
func handOut(t *testing.T, ctx context.Context, keys ...string) (*relaySubscription, []*handedOver, chan []error) {
	sub := &relaySubscription{handed: make(chan []*postrider.Delivery), closing: make(chan struct{}), parkAfter: time.Second}
	msgs := make([]*postrider.Message, len(keys))
	for i, key := range keys {
		msgs[i] = &postrider.Message{Key: key}
	}
	answer := make(chan []error, 1)
	go func() { answer <- handOver{sub}.Publish(ctx, msgs) }()
	var handed []*handedOver
	for _, d := range <-sub.handed {
		handed = append(handed, d.Settler.(*handedOver))
	}
	return sub, handed, answer
}

// unfinished returns how to wait for a message, nil if it has an outcome.
func unfinished(err error) *attempt.UnfinishedError {
	u, _ := errors.AsType[*attempt.UnfinishedError](err)
	return u
}

// TestTakenBack: the consumer works on the first two messages of a key for long. They are unfinished, and it can no longer begin with the
// third, which it has not begun.
func TestTakenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, handed, answer := handOut(t, t.Context(), "k", "k", "a", "k", "")
		handed[0].begin(time.Now())
		handed[1].begin(time.Now())
		handed[2].settle(nil)
		handed[4].settle(nil)
		errs := <-answer
		if unfinished(errs[0]) == nil || unfinished(errs[1]) == nil || errs[2] != nil || !errors.Is(errs[3], postrider.ErrPredecessorFailed) || errs[4] != nil {
			t.Fatalf("answered %v", errs)
		}
		if handed[3].begin(time.Now()) {
			t.Error("the consumer begins with a message that was taken back")
		}
		handed[0].settle(nil)
		if err := unfinished(errs[0]).Wait(t.Context()); err != nil {
			t.Errorf("the first: %v", err)
		}
	})
}

// TestLostTogether: the lease is lost while the consumer works on messages of a key, in the call and after it. None has an outcome before
// the consumer has put it back, and when it has, it can begin with no later one of the key.
func TestLostTogether(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]bool{"in the call": false, "after the call": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, lose := context.WithCancel(t.Context())
				_, handed, answer := handOut(t, ctx, "k", "k", "k")
				handed[0].begin(time.Now())
				handed[1].begin(time.Now())
				if later {
					time.Sleep(5 * time.Second)
				}
				lose()
				errs := <-answer
				first, second := unfinished(errs[0]), unfinished(errs[1])
				if first == nil || second == nil || unfinished(errs[2]) != nil || handed[2].begin(time.Now()) {
					t.Fatalf("answered %v", errs)
				}
				outcome := make(chan error, 1)
				go func() { outcome <- first.Wait(ctx) }()
				synctest.Wait()
				select {
				case err := <-outcome:
					t.Fatalf("the call ends with %v while the consumer works on the message", err)
				case <-handed[1].Lost():
				default:
					t.Fatal("the first message is lost before the second")
				}
				handed[1].putBack()
				handed[0].putBack()
				if err := <-outcome; !errors.Is(err, context.Canceled) {
					t.Errorf("the outcome is %v", err)
				}
				if handed[0].begin(time.Now()) || handed[1].begin(time.Now()) {
					t.Error("the consumer begins with a message that is lost")
				}
			})
		})
	}
}

// TestTimeOver: a call ends after AttemptTimeout. Messages with which the consumer has not begun are taken back, and it keeps the others.
func TestTimeOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer end()
		sub, handed, answer := handOut(t, ctx, "k", "k", "a")
		handed[0].begin(time.Now())
		errs := <-answer
		u := unfinished(errs[0])
		if u == nil || !errors.Is(errs[1], postrider.ErrPredecessorFailed) || postrider.OutcomeOf(errs[2]).Kind != postrider.BrokerUnavailable {
			t.Fatalf("answered %v", errs)
		}
		if handed[1].begin(time.Now()) || handed[2].begin(time.Now()) {
			t.Error("the consumer begins with a message that was taken back")
		}
		close(sub.closing)
		if err := u.Wait(t.Context()); postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable {
			t.Errorf("the outcome of a message of a consumer that stops is %v", err)
		}
	})
}
