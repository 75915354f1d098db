package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

var (
	_ store.TxLimiter[pgx.Tx]  = (*Store)(nil)
	_ store.TxLimiter[*sql.Tx] = (*SQLStore)(nil)
)

// idleSQL limits how long the transaction may wait for its next statement; "" without a limit.
func (s *Store) idleSQL(atMost time.Duration) string {
	limit := s.IdleLimit()
	if limit == 0 {
		return ""
	}
	if atMost > 0 {
		limit = min(limit, atMost)
	}
	return fmt.Sprintf("set local idle_in_transaction_session_timeout = %d", max(limit.Milliseconds(), 1))
}

// IdleLimit implements store.TxLimiter.
func (s *Store) IdleLimit() time.Duration { return max(s.config.IdleTimeout, 0) }

// Connections implements store.TxLimiter: all of the pool's connections but one, which the relay uses to read and record, and on a
// *sql.DB another one for heartbeats.
func (s *Store) Connections() int { return cap(s.places) }

// BeginLimited implements store.TxLimiter.
func (s *Store) BeginLimited(ctx context.Context, atMost time.Duration) (pgx.Tx, error) {
	tx, err := s.beginWith(ctx, atMost)
	return tx, translate("begin", err)
}

// beginWith begins a limited transaction and runs queries in it, in one round trip. After an error there is no transaction.
func (s *Store) beginWith(ctx context.Context, atMost time.Duration, queries ...query) (pgx.Tx, error) {
	leave, err := s.place(ctx)
	if err != nil {
		return nil, err
	}
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if limit := s.idleSQL(atMost); limit != "" {
		queries = append([]query{{sql: limit}}, queries...)
	}
	for _, q := range queries {
		batch.Queue(q.sql, q.args...)
	}
	conn, err := s.pool.acquire(ctx)
	if err != nil {
		leave()
		return nil, err
	}
	results := conn.Conn().SendBatch(ctx, batch)
	_, err = results.Exec()
	for i := 0; i < len(queries) && err == nil; i++ {
		err = queries[i].read(results)
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	tx := &limitedTx{Tx: results.Tx(), conn: conn, leave: leave}
	if err != nil {
		return nil, errors.Join(err, s.rollbackAfter(ctx, tx))
	}
	return tx, nil
}

// place waits for a place, and returns what leaves it.
func (s *Store) place(ctx context.Context) (leave func(), err error) {
	if s.places == nil {
		return func() {}, nil
	}
	select {
	case s.places <- struct{}{}:
		return func() { <-s.places }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// BeginLimited implements store.TxLimiter. Since database/sql begins a transaction on its own, the limit takes another round
// trip; nothing is locked before it is set.
func (s *SQLStore) BeginLimited(ctx context.Context, atMost time.Duration) (*sql.Tx, error) {
	tx, err := s.Begin(ctx)
	if limit := s.idleSQL(atMost); err == nil && limit != "" {
		if _, err = tx.ExecContext(ctx, limit); err != nil {
			_ = tx.Rollback() // err is the cause
			return nil, translate("begin", err)
		}
	}
	return tx, err
}

// Connections implements store.TxLimiter: all connections that the db may open, if everything else that a relay does uses the
// Store's pool, or else as for the Store.
func (s *SQLStore) Connections() int {
	if s.pool == (sqlPool{s.db}) {
		return s.Store.Connections()
	}
	return s.db.Stats().MaxOpenConnections
}
