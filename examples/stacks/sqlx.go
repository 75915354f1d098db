package stacks

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jmoiron/sqlx"
)

// PlaceWithSqlx inserts an order and publishes OrderPlaced in one transaction of sqlx.
func PlaceWithSqlx(ctx context.Context, db *sqlx.DB, box Outbox, o Order) (err error) {
	tx, err := db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	if _, err := tx.NamedExecContext(ctx, "insert into orders (id, total) values (:id, :total)", o); err != nil {
		return err
	}
	if err := publishPlaced(ctx, box, tx.Tx, o); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	box.Wake()
	return nil
}

// SqlxIn returns a transaction that somebody else has begun, such as that of a message's handler, as one of sqlx. Named queries need
// the bind type of the driver: use db.Rebind, or positional parameters.
func SqlxIn(db *sqlx.DB, tx *sql.Tx) *sqlx.Tx { return &sqlx.Tx{Tx: tx, Mapper: db.Mapper} }
