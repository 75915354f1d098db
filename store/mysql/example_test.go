package mysqlstore_test

import (
	"context"
	"database/sql"
	"log"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// A message in the transaction of the business change. The program imports a driver, such as github.com/go-sql-driver/mysql.
func ExampleNew() {
	ctx := context.Background()
	db, err := sql.Open("mysql", "shop:secret@tcp(db:3306)/shop")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := mysqlstore.Migrate(ctx, db, mysqlstore.Config{}, mysqlstore.Latest); err != nil {
		log.Fatal(err)
	}
	store, err := mysqlstore.New(db, mysqlstore.Config{})
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
