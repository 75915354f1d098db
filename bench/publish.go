package main

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider/bench/internal/report"
	"github.com/postrider/postrider/outbox"
)

const (
	oursInTx    = "Postrider, InTx"
	oursSQLInTx = "Postrider, database/sql, InTx"
	handSQL     = "by hand, database/sql"
)

// way is a way to write an order and its message in one transaction; i is the order's number.
type way struct {
	name, limit, peer string
	role              report.Role
	publish           func(ctx context.Context, i int) error
}

// publishSuite measures ways of publishing with the given number of concurrent writers.
func publishSuite(name, title string, writers int, share float64, ways func(ctx context.Context, b *bundle) ([]way, error)) suite {
	return suite{
		name: name, title: title, figure: figureRate, unit: "tx/s", also: usual, share: share,
		setup: func(ctx context.Context, b *bundle) ([]entry, error) {
			if err := b.database(ctx); err != nil {
				return nil, err
			}
			if _, err := b.pool.Exec(ctx, ordersSQL); err != nil {
				return nil, err
			}
			all, err := ways(ctx, b)
			if err != nil {
				return nil, err
			}
			var entries []entry
			for _, w := range all {
				entries = append(entries, entry{
					name: w.name, role: w.role, limit: w.limit, peer: w.peer,
					prepare: func(ctx context.Context) error { // prepares statements and opens connections
						return parallel(ctx, writers, 20*writers, w.publish)
					},
					run: func(ctx context.Context) (report.Figures, error) {
						return nil, parallel(ctx, writers, b.n, w.publish)
					},
				})
			}
			return entries, nil
		},
	}
}

// publishWays returns all ways.
func publishWays(ctx context.Context, b *bundle) ([]way, error) {
	ways, err := publishFewWays(ctx, b)
	if err != nil {
		return nil, err
	}
	more, err := publishSQLWays(ctx, b)
	if err != nil {
		return nil, err
	}
	river, err := riverPublish(ctx, b)
	if err != nil {
		return nil, err
	}
	marks, err := watermillPublish(ctx, b)
	return append(append(append(ways, more...), river), marks...), err
}

// publishFewWays returns Postrider through pgx, and the same by hand.
func publishFewWays(ctx context.Context, b *bundle) ([]way, error) {
	if err := b.handOutbox(ctx); err != nil {
		return nil, err
	}
	store, err := b.store(ctx, "ours_")
	if err != nil {
		return nil, err
	}
	o, err := newOutbox(store)
	if err != nil {
		return nil, err
	}
	inBatch, err := newOutbox(store.Batch())
	if err != nil {
		return nil, err
	}
	return []way{
		{name: "the order alone", role: report.Limit, publish: b.orderAlone},
		{name: handStatements, role: report.Limit, publish: b.inStatements},
		{name: "Postrider, separate statements", role: report.Ours, limit: handStatements, publish: func(ctx context.Context, i int) error {
			return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error { return placeOrder(ctx, o, tx, i) })
		}},
		{name: oursInTx, role: report.Ours, limit: handStatements, publish: func(ctx context.Context, i int) error {
			_, err := o.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error { return placeOrder(ctx, o, tx, i) })
			return err
		}},
		{name: handBatch, role: report.Limit, publish: b.inBatch},
		{name: "Postrider, one pgx.Batch", role: report.Ours, limit: handBatch, publish: func(ctx context.Context, i int) error {
			all := &pgx.Batch{}
			all.Queue(insertOrderSQL, customer, i)
			if _, err := inBatch.Publish(ctx, all, keys(manyKeys).message(i)); err != nil {
				return err
			}
			return b.pool.SendBatch(ctx, all).Close()
		}},
	}, nil
}

// publishSQLWays returns the ways through database/sql, with pgx's driver.
func publishSQLWays(ctx context.Context, b *bundle) ([]way, error) {
	store, err := b.store(ctx, "ours_sql_")
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDBFromPool(b.pool)
	db.SetMaxIdleConns(poolSize)
	b.after(func() { _ = db.Close() })
	o, err := newOutbox(store.SQL(db))
	if err != nil {
		return nil, err
	}
	return []way{
		{name: handSQL, role: report.Limit, publish: func(ctx context.Context, i int) error {
			return inSQLTx(ctx, db, func(tx *sql.Tx) error {
				if _, err := tx.ExecContext(ctx, insertOrderSQL, customer, i); err != nil {
					return err
				}
				_, err := tx.ExecContext(ctx, handInsertSQL, handColumns(keys(manyKeys).message(i))...)
				return err
			})
		}},
		{name: "Postrider, database/sql", role: report.Ours, limit: handSQL, publish: func(ctx context.Context, i int) error {
			return inSQLTx(ctx, db, func(tx *sql.Tx) error { return placeOrderSQL(ctx, o, tx, i) })
		}},
		{name: oursSQLInTx, role: report.Ours, limit: handSQL, publish: func(ctx context.Context, i int) error {
			_, err := o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { return placeOrderSQL(ctx, o, tx, i) })
			return err
		}},
	}, nil
}

// placeOrder does what an application does: its own change, and the message about it.
func placeOrder(ctx context.Context, o *outbox.Outbox[pgx.Tx], tx pgx.Tx, i int) error {
	if _, err := tx.Exec(ctx, insertOrderSQL, customer, i); err != nil {
		return err
	}
	_, err := o.Publish(ctx, tx, keys(manyKeys).message(i))
	return err
}

func placeOrderSQL(ctx context.Context, o *outbox.Outbox[*sql.Tx], tx *sql.Tx, i int) error {
	if _, err := tx.ExecContext(ctx, insertOrderSQL, customer, i); err != nil {
		return err
	}
	_, err := o.Publish(ctx, tx, keys(manyKeys).message(i))
	return err
}

// inSQLTx runs do in a transaction of database/sql.
func inSQLTx(ctx context.Context, db *sql.DB, do func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}
