package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// writtenSQL: $1 ids, which it returns in the same order. A transaction that has written nothing has no id yet.
const writtenSQL = `
select i.id from unnest($1::text[]) with ordinality as i (id, ord)
where i.id in (select l.id from {log} l where l.xid = pg_current_xact_id_if_assigned()) order by i.ord`

// One statement inserts at most this many messages and bytes.
const (
	chunkMessages = 1000
	chunkBytes    = 4 << 20
)

// Begin implements store.Outbox and store.Transactor. The transaction is READ COMMITTED, whatever the database's default is;
// begin one yourself if you need another level.
func (s *Store) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := s.pool.BeginTx(ctx, readCommitted)
	return tx, translate("begin", err)
}

var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}

// BeginPipelined implements store.TxPipeliner. The transaction is like that of Begin.
func (s *Store) BeginPipelined(ctx context.Context) (pgx.Tx, error) {
	tx, err := beginPipelined(ctx, s.pool, readCommitted)
	if err != nil {
		return nil, translate("begin", err)
	}
	return tx, nil
}

// Pipeline implements store.TxPipeliner. It saves round trips in transactions of BeginLimited, and those of BeginPipelined do so anyway.
func (s *Store) Pipeline(ctx context.Context, tx pgx.Tx, f func(ctx context.Context, tx pgx.Tx) error) error {
	t, ok := tx.(*limitedTx)
	if !ok {
		return f(ctx, tx)
	}
	if err := t.enter(); err != nil {
		return translate("send statements", err)
	}
	defer t.exit()
	p := &pipelinedTx{conn: t.conn.Conn(), tx: t.Tx, context: ctx}
	defer p.close()
	if err := f(ctx, p); err != nil {
		return err
	}
	_, err := p.flushed(ctx)
	return translate("send statements", err)
}

// Commit implements store.Outbox. Errors: store.ErrNoTransaction, store.ErrUncertain.
func (s *Store) Commit(ctx context.Context, tx pgx.Tx) error {
	if tx == nil {
		return store.ErrNoTransaction
	}
	longer, cancel := stored.WithGrace(ctx)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return errors.Join(translate("commit", err), s.Rollback(longer, tx))
	}
	return translate("commit", uncertain(tx.Commit(longer)))
}

// Rollback implements store.Outbox.
func (s *Store) Rollback(ctx context.Context, tx pgx.Tx) error {
	if tx == nil {
		return nil
	}
	if err := tx.Rollback(ctx); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		return translate("rollback", err)
	}
	return nil
}

// rollbackAfter is Rollback after an error, perhaps of ctx.
func (s *Store) rollbackAfter(ctx context.Context, tx pgx.Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	return s.Rollback(ctx, tx)
}

// Insert implements store.Outbox.
func (s *Store) Insert(ctx context.Context, tx pgx.Tx, msgs []*postrider.Message) error {
	if tx == nil {
		return store.ErrNoTransaction
	}
	n, err := s.partitionsIn(ctx, tx)
	if err != nil {
		return err
	}
	if p, ok := tx.(*pipelinedTx); ok {
		return p.insertAll(ctx, msgs, s.insertsFor(n))
	}
	return insertAll(msgs, s.insertsFor(n).typed, func(sql string, args []any) (int64, error) {
		tag, err := tx.Exec(ctx, sql, args...)
		return tag.RowsAffected(), err
	})
}

// insertAll inserts messages in chunks, one statement each.
func insertAll(msgs []*postrider.Message, statement func(chunk []*postrider.Message) (string, []any, error),
	exec func(sql string, args []any) (int64, error),
) error {
	for chunk := range chunks(msgs) {
		sql, args, err := statement(chunk)
		if err != nil {
			return err
		}
		n, err := exec(sql, args)
		if err != nil {
			return translate("insert messages", err)
		}
		if err := allInserted(n, len(chunk)); err != nil {
			return err
		}
	}
	return nil
}

var errNotInserted = errors.New("insert messages: the database did not write all; look for a trigger or rule on the outbox's log")

func allInserted(n int64, of int) error {
	if n != int64(of) {
		return fmt.Errorf("%w: %d of %d", errNotInserted, n, of)
	}
	return nil
}

// presentPartitionsSQL returns the current number of partitions, whatever the transaction's snapshot.
const presentPartitionsSQL = `select {partitions}()`

// partitionsIn is open for the case that the pool has no free connection besides the caller's.
func (s *Store) partitionsIn(ctx context.Context, tx rowQuerier) (int, error) {
	if n := cmp.Or(s.publishing.Load(), s.partitions.Load()); n > 0 {
		return int(n), nil
	}
	n, err := s.checkSchema(ctx, tx, publishing)
	if err == nil {
		s.publishing.Store(int32(n)) // a process that only publishes never opens the store otherwise
	}
	return n, err
}

// chunks splits messages into what one statement inserts.
func chunks(msgs []*postrider.Message) func(yield func([]*postrider.Message) bool) {
	return func(yield func([]*postrider.Message) bool) {
		start, bytes := 0, 0
		for i, m := range msgs {
			size := m.Size()
			if i > start && (i-start == chunkMessages || bytes+size > chunkBytes) {
				if !yield(msgs[start:i]) {
					return
				}
				start, bytes = i, 0
			}
			bytes += size
		}
		if start < len(msgs) {
			yield(msgs[start:])
		}
	}
}

// Written implements store.Outbox.
func (s *Store) Written(ctx context.Context, tx pgx.Tx, ids []string) ([]string, error) {
	if tx == nil {
		return nil, store.ErrNoTransaction
	}
	rows, err := tx.Query(ctx, s.sql.written, list(ids))
	if err != nil {
		return nil, translate("read what was written", err)
	}
	written, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return written, translate("read what was written", err)
}

// publishedSQL returns what the transaction has written, in the order of writing.
const publishedSQL = `select {message} from {log} where xid = pg_current_xact_id_if_assigned() order by seq`

// Published implements store.Outbox. It returns what the transaction has published in SQL, too.
func (s *Store) Published(ctx context.Context, tx pgx.Tx) (out []*postrider.Message, err error) {
	if tx == nil {
		return nil, store.ErrNoTransaction
	}
	// In binary, whatever the connection's mode: text depends on settings of the user's transaction, such as DateStyle.
	rows, err := tx.Query(ctx, s.names.expand(publishedSQL), pgx.QueryExecModeDescribeExec)
	if err != nil {
		return nil, translate("read what was published", err)
	}
	defer rows.Close()
	for d := newDecoder(rows); d.next(); {
		m, undecodable, err := d.message(0)
		if err := errors.Join(undecodable, err); err != nil {
			return nil, translate("read what was published", err)
		}
		out = append(out, m)
	}
	return out, translate("read what was published", rows.Err())
}
