package sqlite_test

import (
	"context"
	"database/sql"
	"log"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlite"
)

// A message in the transaction of the business change. The program imports a driver, such as modernc.org/sqlite.
func ExampleNew() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file:shop.db")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := sqlite.Migrate(ctx, db, sqlite.Config{}, sqlite.Latest); err != nil {
		log.Fatal(err)
	}
	store, err := sqlite.New(db, sqlite.Config{})
	if err != nil {
		log.Fatal(err)
	}
	box, err := outbox.New(store, outbox.Config{Source: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	_, err = box.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (42)"); err != nil {
			return err
		}
		_, err := box.Publish(ctx, tx, &postrider.Message{Type: "order.placed", Key: "order/42"})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}
