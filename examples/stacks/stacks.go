// Package stacks shows how services that use GORM, sqlx, bun, ent or sqlc publish and handle messages in the transactions of these
// libraries. Each needs a *sql.DB with pgx's driver and nothing else:
//
//	db, err := sql.Open("pgx", dsn)
//	store, err := postgres.NewSQL(db, postgres.Config{})
//	box, err := outbox.New(store, outbox.Config{Source: "shop"})
//
// docs/guides/orms.md explains the code.
package stacks

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
)

// Order is an order of a customer.
type Order struct {
	ID    string `db:"id"`
	Total int    `db:"total"`
}

// OrderPlacedData is the data of OrderPlaced.
type OrderPlacedData struct {
	OrderID string `json:"order_id"`
	Total   int    `json:"total"`
}

// OrderPlaced says that a customer has placed an order.
var OrderPlaced = postrider.Define[OrderPlacedData]("order.placed").WithTopic("orders").
	WithKey(func(d OrderPlacedData) string { return "order/" + d.OrderID })

// Outbox is an outbox in transactions of database/sql.
type Outbox = *outbox.Outbox[*sql.Tx]

// publishPlaced publishes OrderPlaced in the transaction that has inserted the order.
func publishPlaced(ctx context.Context, box Outbox, tx *sql.Tx, o Order) error {
	m, err := OrderPlaced.New(OrderPlacedData{OrderID: o.ID, Total: o.Total})
	if err != nil {
		return err
	}
	_, err = box.Publish(ctx, tx, m)
	return err
}
