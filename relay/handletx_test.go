package relay_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memory"
)

// TestPartitionWithHalfALateGroupIsHandedOver: one of two messages that were committed late fails and is parked while its
// partition is being handed over; the cursor cannot pass it before the other is settled, which nobody works on any more.
func TestPartitionWithHalfALateGroupIsHandedOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		keys := keysIn(3, 3) // the last partition is the first to be handed over
		failing, other, fresh := b.msg(keys[0]), b.msg(keys[1]), b.msg(keys[2])
		var seen journal
		underWay, proceed := make(chan struct{}), make(chan struct{})
		first := true
		run := func() *relay.Relay {
			r := b.relay(relay.Config{})
			err := relay.HandleTxFunc(r, "t", func(_ context.Context, _ *memory.Tx, m *postrider.Message) error {
				if m.ID == failing.ID && first {
					first = false
					close(underWay)
					<-proceed
					return errBoom
				}
				seen.note(m)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			b.start(r)
			return r
		}
		r1 := run()
		pass(time.Second)
		b.transact(func(late *memory.Tx) error {
			err := b.store.Insert(t.Context(), late, []*postrider.Message{failing, other})
			b.publish(fresh)
			pass(5 * time.Second)
			want(t, "delivered before the late ones", seen.of(fresh.Key), []string{fresh.ID})
			return err
		})
		b.store.Wake()
		<-underWay
		r2 := run()
		pass(10 * time.Second)
		close(proceed)
		pass(time.Minute)

		want(t, "the one that failed", seen.of(failing.Key), []string{failing.ID})
		want(t, "the one after it", seen.of(other.Key), []string{other.ID})
		b.wantNothingLeft(r1)
		b.wantNothingLeft(r2)
	})
}
