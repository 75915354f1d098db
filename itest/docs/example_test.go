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

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	db := must(sql.Open("sqlite", "shop.db"))
	must(sqlite.Migrate(ctx, db, sqlite.Config{}, sqlite.Latest))
	must(db.Exec("CREATE TABLE IF NOT EXISTS orders (number INTEGER)"))
	store := must(sqlite.New(db, sqlite.Config{}))
	shop := must(outbox.New(store, outbox.Config{Source: "shop"}))

	// The order and the message are both committed, or neither is.
	must(shop.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		must(tx.ExecContext(ctx, "INSERT INTO orders VALUES (42)"))
		_, err := shop.Publish(ctx, tx, must(OrderPlaced.New(Order{Number: 42})))
		return err
	}))

	// It reaches the handler, in order for each key, even if this process ends in between.
	shipping := must(relay.New(store, relay.Config{Name: "shipping"}))
	err := relay.Handle(shipping, OrderPlaced, func(_ context.Context, m postrider.Typed[Order]) error {
		fmt.Println("ship order", m.Data.Number)
		stop()
		return nil
	})
	if err == nil {
		err = shipping.Run(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
	// Output: ship order 42
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
