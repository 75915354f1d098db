package stacks

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"
)

// bunOrder is an Order as bun maps it.
type bunOrder struct {
	bun.BaseModel `bun:"table:orders"`

	ID    string `bun:"id,pk"`
	Total int    `bun:"total"`
}

// PlaceWithBun inserts an order and publishes OrderPlaced in one transaction of bun.
func PlaceWithBun(ctx context.Context, db *bun.DB, box Outbox, o Order) error {
	err := db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&bunOrder{ID: o.ID, Total: o.Total}).Exec(ctx); err != nil {
			return err
		}
		return publishPlaced(ctx, box, tx.Tx, o)
	})
	if err == nil {
		box.Wake()
	}
	return err
}

// CancelWithBun removes an order in a transaction that somebody else has begun, such as that of a message's handler.
func CancelWithBun(ctx context.Context, db *bun.DB, tx *sql.Tx, id string) error {
	_, err := db.NewDelete().Conn(tx).Model((*bunOrder)(nil)).Where("id = ?", id).Exec(ctx)
	return err
}
