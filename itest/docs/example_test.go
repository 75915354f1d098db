package docs_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/sqlite"
	_ "modernc.org/sqlite" // or any other SQLite driver
)

type Order struct{ Number int }

var OrderPlaced = postrider.Define[Order]("order.placed").WithKey(func(o Order) string { return fmt.Sprint("order/", o.Number) })

func run(ctx context.Context, stop func()) error {
	db, err := sql.Open("sqlite", "shop.db")
	if err != nil {
		return err
	}
	if _, err := sqlite.Migrate(ctx, db, sqlite.Config{}, sqlite.Latest); err != nil {
		return err
	}
	store, err := sqlite.New(db, sqlite.Config{})
	if err != nil {
		return err
	}
	shop, err := outbox.New(store, outbox.Config{Source: "shop"})
	if err != nil {
		return err
	}
	shipping, err := relay.New(store, relay.Config{Name: "shipping"})
	if err != nil {
		return err
	}
	if err := relay.Handle(shipping, OrderPlaced, func(_ context.Context, m postrider.Typed[Order]) error {
		fmt.Println("ship order", m.Data.Number)
		stop() // a service goes on
		return nil
	}); err != nil {
		return err
	}
	orderPlaced, err := OrderPlaced.New(Order{Number: 42})
	if err != nil {
		return err
	}
	if _, err := shop.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { // begins, and commits both or neither
		if _, err := tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (number INTEGER); INSERT INTO orders VALUES (42)"); err != nil {
			return err
		}
		_, err := shop.Publish(ctx, tx, orderPlaced)
		return err
	}); err != nil {
		return err
	}
	return shipping.Run(ctx) // delivers in order per key, also what an earlier process left
}

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	if err := run(ctx, stop); err != nil {
		log.Fatal(err)
	}
	// Output: ship order 42
}
