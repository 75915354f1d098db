package stacks

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider/examples/stacks/orders"
)

// PlaceWithSqlc inserts an order and publishes OrderPlaced in one transaction, with queries that sqlc has generated.
func PlaceWithSqlc(ctx context.Context, db *sql.DB, box Outbox, o Order) error {
	_, err := box.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		err := orders.New(db).WithTx(tx).InsertOrder(ctx, orders.InsertOrderParams{ID: o.ID, Total: int32(o.Total)})
		if err != nil {
			return err
		}
		return publishPlaced(ctx, box, tx, o)
	})
	return err
}
