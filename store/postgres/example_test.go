package postgres_test

import (
	"context"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/postgres"
)

// A message in the transaction of the business change.
func ExampleNew() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://shop:secret@db/shop")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := postgres.Migrate(ctx, pool, postgres.Config{}, postgres.Latest); err != nil {
		log.Fatal(err)
	}
	store, err := postgres.New(pool, postgres.Config{})
	if err != nil {
		log.Fatal(err)
	}
	box, err := outbox.New(store, outbox.Config{Source: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	_, err = box.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES (42)"); err != nil {
			return err
		}
		_, err := box.Publish(ctx, tx, &postrider.Message{Type: "order.placed", Key: "order/42"})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}
