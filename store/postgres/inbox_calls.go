package postgres

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

// query is a statement of an inbox or a saga. Its parameters are types that every driver supports: text, numbers, booleans. Arrays are
// text, or slices where the statement does not say that they are text; a sqlCaller makes text of them.
type query struct {
	sql  string
	args []any
	// row reads one row; nil: there are none to read.
	row func(scan func(dest ...any) error) error
}

// caller runs statements in a user's transaction.
type caller interface {
	// call runs queries one after another; each sees what others have committed before it began. Errors: store.ErrNoTransaction and
	// those of the driver.
	call(ctx context.Context, queries ...query) error
	// partitions returns the number of partitions of the outbox.
	partitions(ctx context.Context, s *Store) (int, error)
}

// pgxCaller sends all queries in one round trip.
type pgxCaller struct{ tx pgx.Tx }

func (c pgxCaller) call(ctx context.Context, queries ...query) error {
	if c.tx == nil {
		return store.ErrNoTransaction
	}
	return sendQueries(ctx, c.tx, queries)
}

func (c pgxCaller) partitions(ctx context.Context, s *Store) (int, error) {
	if c.tx == nil {
		return 0, store.ErrNoTransaction
	}
	return s.partitionsIn(ctx, c.tx)
}

// sendQueries runs queries in one round trip, on a pool or in a transaction.
func sendQueries(ctx context.Context, on interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}, queries []query) error {
	batch := &pgx.Batch{}
	for _, q := range queries {
		batch.Queue(q.sql, q.args...)
	}
	results := on.SendBatch(ctx, batch)
	for _, q := range queries {
		if err := q.read(results); err != nil {
			_ = results.Close() // err is the cause of what this one reports
			return err
		}
	}
	return results.Close()
}

// runQueries runs queries in one round trip and as one transaction of their own, READ COMMITTED whatever the default is: each
// sees what was committed while the previous one waited.
func (s *Store) runQueries(ctx context.Context, queries ...query) error {
	return sendQueries(ctx, s.pool, append([]query{{sql: readCommittedSQL}}, queries...))
}

func (q query) read(results pgx.BatchResults) error {
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if q.row == nil {
			continue
		}
		if err := q.row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// sqlCaller is for database/sql, which has no pipelines: one round trip per query.
type sqlCaller struct{ tx *sql.Tx }

func (c sqlCaller) call(ctx context.Context, queries ...query) error {
	if c.tx == nil {
		return store.ErrNoTransaction
	}
	for _, q := range queries {
		if err := c.one(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

func (c sqlCaller) partitions(ctx context.Context, s *Store) (int, error) {
	if c.tx == nil {
		return 0, store.ErrNoTransaction
	}
	return s.partitionsIn(ctx, sqlQuerier(c))
}

func (c sqlCaller) one(ctx context.Context, q query) (err error) {
	q.args = arraysAsText(slices.Clone(q.args))
	if q.row == nil {
		_, err := c.tx.ExecContext(ctx, q.sql, q.args...)
		return err
	}
	rows, err := c.tx.QueryContext(ctx, q.sql, q.args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := q.row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// text appends a text column to a slice.
func text(into *[]string) func(scan func(dest ...any) error) error {
	return func(scan func(dest ...any) error) error {
		var value string
		err := scan(&value)
		*into = append(*into, value)
		return err
	}
}

// inboxStatements holds the frequently run statements of an inbox with table names filled in.
type inboxStatements struct {
	claim, claimOne, heldAmong, heldOne                 string
	makeVersion, lockVersion, setVersion                string
	holdKeys, parkFailed, deadFailed, deadHolding, take string
	allRemoved, countDelivered                          string
	position, firstPosition, nextPosition               string
}

func newInboxStatements(n names) inboxStatements {
	return inboxStatements{
		claim: n.expand(claimSQL), claimOne: n.expand(claimOneSQL),
		heldAmong: n.expand(heldAmongSQL), heldOne: n.expand(heldOneSQL),
		makeVersion: n.expand(makeVersionSQL), lockVersion: n.expand(lockVersionSQL), setVersion: n.expand(setVersionSQL),
		holdKeys: n.expand(holdKeysSQL), parkFailed: n.expand(parkFailedSQL), deadFailed: n.expand(deadFailedSQL),
		deadHolding: n.expand(deadHoldingSQL), take: n.expand(takeSQL),
		allRemoved: n.expand(allRemovedSQL), countDelivered: n.expand(countDeliveredSQL),
		position: n.expand(positionSQL), firstPosition: n.expand(firstPositionSQL), nextPosition: n.expand(nextPositionSQL),
	}
}
