package postridertest_test

import (
	"context"
	"fmt"
	"log"
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/memory"
)

type orderPlaced struct {
	OrderID string `json:"order_id"`
	Total   int    `json:"total"`
}

var (
	placed = postrider.Define[orderPlaced]("order.placed").WithTopic("orders").
		WithKey(func(d orderPlaced) string { return "order/" + d.OrderID })
	paid = postrider.Define[orderPlaced]("order.paid").WithTopic("orders")
)

// refused is a testing.TB whose test ends at its first failure.
type refused struct {
	testing.TB
	text string
}

func (*refused) Helper() {}

func (r *refused) Fatalf(format string, args ...any) { r.Fatal(fmt.Sprintf(format, args...)) }

func (r *refused) Fatal(args ...any) {
	r.text = fmt.Sprint(args...)
	panic(r)
}

// failure returns how check fails, "" if it does not.
func failure(check func(t testing.TB)) string {
	r := &refused{}
	func() {
		defer func() {
			if v := recover(); v != nil && v != any(r) {
				panic(v)
			}
		}()
		check(r)
	}()
	return r.text
}

// shop is a service under test.
type shop struct {
	store *memory.Store
	box   *outbox.Outbox[*memory.Tx]
}

func newShop() shop {
	s := memory.New(memory.Config{})
	box, err := outbox.New(s, outbox.Config{Source: "shop"})
	check(err)
	return shop{s, box}
}

func (s shop) place(ctx context.Context, tx *memory.Tx, id string, total int) error {
	m, err := placed.New(orderPlaced{OrderID: id, Total: total})
	if err != nil {
		return err
	}
	m.Headers = map[string]string{"region": "eu"}
	_, err = s.box.Publish(ctx, tx, m)
	return err
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
