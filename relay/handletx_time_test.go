package relay_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memory"
)

// transactions records which messages shared a transaction, in the order of their commits.
type transactions struct {
	mu sync.Mutex
	of map[*memory.Tx][]string
}

func (n *transactions) note(tx *memory.Tx, m *postrider.Message) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.of == nil {
		n.of = make(map[*memory.Tx][]string)
	}
	n.of[tx] = append(n.of[tx], m.ID)
}

func (n *transactions) sizes() (sizes []int, calls int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, ids := range n.of {
		sizes = append(sizes, len(ids))
		calls += len(ids)
	}
	slices.Sort(sizes)
	return sizes, calls
}

// TestTransactionIsBoundedByTime: after a third of LeaseTTL a transaction starts no further message; what it has done is
// committed, and the rest continues in order. Messages that were committed late stay together.
func TestTransactionIsBoundedByTime(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"fresh": false, "late": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				keys := keysIn(0, 2)
				var order journal
				var shared transactions
				r := b.relay(relay.Config{}) // LeaseTTL is 15 s
				err := relay.HandleTxFunc(r, "t", func(_ context.Context, tx *memory.Tx, m *postrider.Message) error {
					time.Sleep(time.Second)
					order.note(m)
					shared.note(tx, m)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				b.start(r)
				pass(time.Second)
				const n = 12
				var ids []string
				msgs := b.many(n, keys[0])
				for _, m := range msgs {
					ids = append(ids, m.ID)
				}
				wantSizes := []int{2, 5, 5}
				b.transact(func(tx *memory.Tx) error {
					err := b.store.Insert(t.Context(), tx, msgs)
					if late {
						wantSizes = []int{1, n}
						b.publish(b.msg(keys[1]))
						pass(5 * time.Second)
					}
					return err
				})
				b.store.Wake()
				pass(time.Minute)
				want(t, "delivered", order.of(keys[0]), ids)
				if sizes, _ := shared.sizes(); !slices.Equal(sizes, wantSizes) {
					t.Errorf("transactions of %s messages, want %s", fmt.Sprint(sizes), fmt.Sprint(wantSizes))
				}
				b.wantNothingLeft(r)
			})
		})
	}
}
