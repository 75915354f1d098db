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

func run(ctx context.Context, db *sql.DB, ship func(context.Context, postrider.Typed[Order]) error) error {
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
	if err := relay.Handle(shipping, OrderPlaced, ship); err != nil {
		return err
	}
	message, err := OrderPlaced.New(Order{Number: 42})
	if err != nil {
		return err
	}
	_, err = shop.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { // commits the order and its message, or neither
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?)", 42); err != nil {
			return err
		}
		_, err := shop.Publish(ctx, tx, message)
		return err
	})
	if err != nil {
		return err
	}
	return shipping.Run(ctx) // delivers in order per key, also what an earlier process left
}

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	ship := func(_ context.Context, m postrider.Typed[Order]) error {
		fmt.Println("ship order", m.Data.Number)
		stop()
		return nil
	}
	db, err := sql.Open("sqlite", "shop.db")
	if err == nil {
		_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (number INTEGER)")
	}
	if err == nil {
		err = run(ctx, db, ship)
	}
	if err != nil {
		log.Fatal(err)
	}
	// Output: ship order 42
}
