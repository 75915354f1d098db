package postridertest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/postridertest"
)

// Check what a function publishes in a transaction. In a test, t is its *testing.T.
func ExampleRequirePublished() {
	var t testing.TB = &refused{}
	ctx := context.Background()
	s := newShop()
	tx, err := s.store.Begin(ctx)
	check(err)
	check(s.place(ctx, tx, "42", 1999))

	data := postridertest.RequirePublished(t, ctx, s.box, tx, placed, postridertest.Key("order/42"))
	fmt.Println(data.Total)
	postridertest.RequireNotPublished(t, ctx, s.box, tx, paid)
	check(s.store.Rollback(ctx, tx))
	// Output: 1999
}

// Run a handler as a relay does.
func ExampleHandler() {
	var t testing.TB = &refused{}
	ctx, stock := context.Background(), 0
	h := postridertest.NewHandler(t, placed, func(ctx context.Context, m postrider.Typed[orderPlaced]) error {
		switch {
		case m.Data.OrderID == "":
			return postrider.Dead("no order", nil)
		case stock == 0:
			return postrider.Retry(time.Minute, errors.New("out of stock"))
		}
		return nil
	}).WithMaxAttempts(2)

	fmt.Println(h.Handle(ctx, orderPlaced{}))
	fmt.Println(h.Handle(ctx, orderPlaced{OrderID: "42"}))
	fmt.Println(h.Again(ctx))
	stock = 1
	fmt.Println(h.Handle(ctx, orderPlaced{OrderID: "43"}))
	// Output:
	// attempt 1: dead: no order
	// attempt 1: retried after 1m0s: out of stock
	// attempt 2: dead: attempts exhausted: out of stock
	// attempt 1: delivered
}
