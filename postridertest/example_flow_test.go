package postridertest_test

import (
	"context"
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/postridertest"
	"github.com/postrider/postrider/store/memory"
)

// TestShipping shows that a service ships each order once, whatever fails.
func TestShipping(t *testing.T) {
	t.Parallel()
	postridertest.EachFault(t, func(t *testing.T, f *postridertest.Flow) {
		shipped := make(map[string]int)
		f.Consume("shipping", []string{"orders"}, func(c *inbox.Consumer[*memory.Tx]) error {
			return inbox.Handle(c, placed, func(_ context.Context, tx *memory.Tx, m postrider.Typed[orderPlaced]) error {
				return tx.OnCommit(func() { shipped[m.Data.OrderID]++ })
			})
		})
		m, err := placed.New(orderPlaced{OrderID: "42", Total: 1999})
		if err != nil {
			t.Fatal(err)
		}
		f.Publish(m)
		f.Wait()
		if shipped["42"] != 1 {
			t.Errorf("order 42 was shipped %d times", shipped["42"])
		}
	})
}
