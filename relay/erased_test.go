package relay_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/erasure"
	"github.com/postrider/postrider/relay"
)

// TestErasedMessagesAreSkipped: the relay delivers neither a message that was erased in the log, nor one that it has parked and
// holds a key for, and goes on with the others.
func TestErasedMessagesAreSkipped(t *testing.T) {
	t.Parallel()
	for name, start := range everyWay {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, j := setup(t), &journal{}
				b.publish(b.msgs("k", "k", "other", "", "early")...)
				done, err := erasure.New(b.store).Erase(t.Context(), erasure.Plan{Key: "early", By: "ann"}, nil)
				if must(t, err); done.Logged != 1 {
					t.Errorf("erased %+v, want 1 in the log", done)
				}
				fails := true
				r := start(b, relay.Config{BackoffBase: time.Hour, BackoffMax: time.Hour}, func(_ context.Context, m *postrider.Message) error {
					if fails && m.Key == "k" {
						return errBoom
					}
					j.note(m)
					return nil
				})
				b.start(r)
				pass(time.Minute)
				done, err = erasure.New(b.store).Erase(t.Context(), erasure.Plan{Key: "k", By: "ann"}, nil)
				if must(t, err); done.Logged != 2 || done.Parked != 2 {
					t.Errorf("erased %+v, want 2 in the log, both parked", done)
				}
				fails = false
				b.publish(b.msgs("k")...)
				pass(time.Minute)
				want(t, "key", j.of("k"), []string{"m006"})
				want(t, "others", append(j.of("other"), j.of("")...), []string{"m003", "m004"})
				b.wantNothingLeft(r)
			})
		})
	}
}
