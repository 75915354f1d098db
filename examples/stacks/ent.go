package stacks

import (
	"context"
	"database/sql"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/postrider/postrider/examples/stacks/ent"
)

// PlaceWithEnt inserts an order and publishes OrderPlaced in one transaction. The outbox begins it, since ent does not give its own out.
func PlaceWithEnt(ctx context.Context, box Outbox, o Order) error {
	_, err := box.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := EntIn(tx).Order.Create().SetID(o.ID).SetTotal(o.Total).Exec(ctx); err != nil {
			return err
		}
		return publishPlaced(ctx, box, tx, o)
	})
	return err
}

// EntIn returns a client in a transaction of database/sql, such as that of a message's handler.
func EntIn(tx *sql.Tx) *ent.Client {
	return ent.NewClient(ent.Driver(entsql.NewDriver(dialect.Postgres, entsql.Conn{ExecQuerier: tx})))
}
