package relay_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// TestDiscardedMessageIsOnRecordAndHoldsNothing: in every way to deliver, a discarded message is a discarded dead letter, and
// its key goes on, also where a dead letter holds it.
func TestDiscardedMessageIsOnRecordAndHoldsNothing(t *testing.T) {
	t.Parallel()
	for name, start := range everyWay {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, j := setup(t), &journal{}
				b.publish(b.msgs("k", "k", "k", "", "")...)
				r := start(b, relay.Config{OnDead: relay.HoldKey}, func(_ context.Context, m *postrider.Message) error {
					switch {
					case m.ID == "m001", m.ID == "m002" && m.Attempt == 2, m.ID == "m004":
						return fmt.Errorf("handle: %w", postrider.Discard("obsolete", errBoom))
					case m.ID == "m002":
						return errBoom
					}
					j.note(m)
					return nil
				})
				b.start(r)
				pass(time.Minute)
				want(t, "key", j.of("k"), []string{"m003"})
				want(t, "without a key", j.of(""), []string{"m005"})
				st := b.status()
				if st.Dead.N != 0 || st.Failed != 1 || st.Delivered != 2 {
					t.Errorf("open dead letters %d, failed attempts %d, delivered %d; want 0, 1, 2", st.Dead.N, st.Failed, st.Delivered)
				}
				attempts := map[string]int{"m001": 1, "m002": 2, "m004": 1}
				for l, err := range deadletter.New(b.store).ListDead(t.Context(), store.DeadFilter{State: store.DeadDiscarded}, 0, 0) {
					must(t, err)
					if l.Reason != "obsolete" || l.ResolvedBy != "r" || l.Attempts != attempts[l.Message.ID] || l.Cause == "" {
						t.Errorf("discarded: %+v", l)
					}
					delete(attempts, l.Message.ID)
				}
				if len(attempts) > 0 {
					t.Errorf("not on record: %v", attempts)
				}
				b.wantNothingLeft(r)
			})
		})
	}
}
