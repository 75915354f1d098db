package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/stored"
)

// executor is a transaction, a connection or a pool.
type executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// txn runs statements of the store, in one transaction unless it is pooled.
type txn struct {
	s  *Store
	on executor
	// now is the time on the database's clock, in microseconds, and partitions the number of partitions, both as read by look.
	now        int64
	partitions int
	// incarnation is the server's current incarnation, "" if none was drawn yet, and begunAt when it was drawn. durable reports
	// that a crash loses no commit.
	incarnation string
	begunAt     int64
	durable     bool
	// prelude is executed together with the first query.
	prelude *string
}

// pooled runs each statement as its own transaction.
func (s *Store) pooled() txn { return txn{s: s, on: s.db} }

// expand fills the table names of the outbox into a statement.
func (s *Store) expand(text string) string { return s.names.Replace(text) }

func (t txn) run(ctx context.Context, text string, args ...any) (sql.Result, error) {
	var st statement
	st.add(t.s.expand(text), args)
	return t.send(ctx, &st)
}

// rowReserve is how much of a packet, in bytes, is left for what the tables add to a message, such as its history.
const rowReserve = 256 << 10

// mostBytes is the maximum size of a statement, and so of a message in it.
func (s *Store) mostBytes() int { return s.server.maxPacket - min(rowReserve, s.server.maxPacket/4) }

// sameCharsetsSQL says whether the server takes parameters as they are: drivers send them as text, which the server converts from
// the one character set to the other.
const sameCharsetsSQL = `SELECT @@character_set_client = @@character_set_connection`

// send executes a statement. One that the server would not take is not sent: the server would close the connection.
func (t txn) send(ctx context.Context, st *statement) (sql.Result, error) {
	if n := st.size(); n > t.s.mostBytes() {
		return nil, fmt.Errorf("a statement of %d bytes: %w: max_allowed_packet is %d", n, ErrTooLarge, t.s.server.maxPacket)
	}
	if len(st.params) == 0 {
		return t.on.ExecContext(ctx, st.text)
	}
	var exact bool
	if err := t.get(ctx, sameCharsetsSQL, nil, &exact); err != nil {
		return nil, err
	}
	if !exact {
		return t.send(ctx, &statement{text: render(st.text, st.params)})
	}
	prepared, err := t.on.PrepareContext(ctx, st.text)
	if err != nil {
		return nil, err
	}
	defer prepared.Close()
	return prepared.ExecContext(ctx, st.params...)
}

func (t txn) exec(ctx context.Context, text string, args ...any) (int64, error) {
	res, err := t.run(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// The bounds of a statement for several rows, in rows and in bytes; one row is always allowed.
const (
	rowsAtOnce  = 250
	bytesAtOnce = 1 << 20
)

// execRows executes a statement for rows, which are SELECTs of one row each and take the place of %s: as many times as their number and
// size require, and not at all without any. It returns how many rows were affected.
func (t txn) execRows(ctx context.Context, text string, rows []string, args ...any) (affected int64, err error) {
	most := min(bytesAtOnce, t.s.mostBytes()/2)
	for len(rows) > 0 {
		n, size := 1, len(rows[0])
		for n < min(len(rows), rowsAtOnce) && size+len(rows[n]) <= most {
			size += len(rows[n])
			n++
		}
		changed, err := t.exec(ctx, strings.Replace(text, `%s`, strings.Join(rows[:n], ` UNION ALL `), 1), args...)
		if err != nil {
			return affected, err
		}
		affected, rows = affected+changed, rows[n:]
	}
	return affected, nil
}

func (t txn) query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	text = render(t.s.expand(text), args)
	if t.prelude != nil && *t.prelude != "" {
		before := *t.prelude
		*t.prelude = ""
		if t.s.server.mariaDB() {
			text = atOnce(before, text)
		} else if _, err := t.on.ExecContext(ctx, before); err != nil {
			return nil, err
		}
	}
	return t.on.QueryContext(ctx, text)
}

// asTx returns the transaction for what stores share.
func (t txn) asTx() stored.Tx { return stored.Tx{Query: t.query, Exec: t.exec} }

func (t txn) get(ctx context.Context, text string, args []any, dest ...any) error {
	return stored.Query(t.query).Get(ctx, text, args, dest...)
}

func (t txn) each(ctx context.Context, text string, args []any, scan func(*sql.Rows) error) error {
	return stored.Query(t.query).Each(ctx, text, args, scan)
}

// read runs f in a transaction that sees one state of the database and locks nothing.
func (s *Store) read(ctx context.Context, doing string, f func(txn) error) error {
	return s.transact(ctx, doing, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}, f)
}

// write runs f in a transaction at READ COMMITTED: no gap is locked, and each statement sees what was committed before it. After
// a deadlock or a lock timeout, f may run again; what it did before is undone.
func (s *Store) write(ctx context.Context, doing string, f func(txn) error) error {
	return s.transact(ctx, doing, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, f)
}

// tries is how often a transaction of the store is tried when locks of others are in its way.
const tries = 6

func (s *Store) transact(ctx context.Context, doing string, options *sql.TxOptions, f func(txn) error) error {
	return s.repeat(ctx, doing, func() error { return s.once(ctx, options, f) })
}

// transactBare is write for an f that reads the clock itself.
func (s *Store) transactBare(ctx context.Context, doing string, f func(txn) error) error {
	return s.repeat(ctx, doing, func() error { return s.bare(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, f) })
}

// repeat runs a transaction again after a deadlock or lock timeout, and draws an incarnation if none exists.
func (s *Store) repeat(ctx context.Context, doing string, once func() error) error {
	wait, drawn := 2*time.Millisecond, 0
	for try := 1; ; try++ {
		err := once()
		if errors.Is(err, errNoIncarnation) && drawn < 3 {
			if err = s.drawIncarnation(ctx); err == nil {
				drawn++
				continue
			}
		}
		if err == nil || try == tries || !s.cfg.passing(ctx, err) {
			return s.cfg.explain(doing, err)
		}
		timer := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return s.cfg.explain(doing, err)
		}
		wait *= 2
	}
}

// once runs f in a transaction. If it writes, the time that it may wait for its next statement is limited, since others may wait
// for its locks.
func (s *Store) once(ctx context.Context, options *sql.TxOptions, f func(txn) error) error {
	return s.bare(ctx, options, func(t txn) error {
		if err := t.look(ctx); err != nil {
			return err
		}
		return f(t)
	})
}

// restoreWithin limits the statement that restores the session's old limit.
const restoreWithin = 5 * time.Second

// bare is once for an f that reads the clock itself.
func (s *Store) bare(ctx context.Context, options *sql.TxOptions, f func(txn) error) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	limit, unlimit := s.limits()
	if options.ReadOnly {
		limit, unlimit = "", ""
	}
	tx, err := conn.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	if unlimit != "" {
		defer func() {
			after, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreWithin)
			defer cancel()
			_, _ = conn.ExecContext(after, unlimit) // if this fails, the connection is gone
		}()
	}
	defer tx.Rollback() // after Commit it does nothing
	if err := f(txn{s: s, on: tx, prelude: &limit}); err != nil {
		return err
	}
	return tx.Commit()
}

// again runs a statement that is its own transaction until it meets no deadlock or lock timeout, at most tries times.
func (s *Store) again(ctx context.Context, f func() error) error {
	for try := 1; ; try++ {
		if err := f(); err == nil || try == tries || !s.cfg.passing(ctx, err) {
			return err
		}
	}
}

const lookSQL = `SELECT {now}, m.value, i.incarnation, i.begun_at, @@GLOBAL.innodb_flush_log_at_trx_commit = 1
	FROM {prefix}meta m LEFT JOIN {prefix}incarnations i ON i.server = {server} WHERE m.name = 'partitions'`

// look reads the database's clock, the number of partitions and the incarnation.
func (t *txn) look(ctx context.Context) error {
	var incarnation sql.Null[string]
	var begun sql.Null[int64]
	err := t.get(ctx, lookSQL, nil, &t.now, &t.partitions, &incarnation, &begun, &t.durable)
	t.incarnation, t.begunAt = incarnation.V, begun.V
	return err
}

func set[T comparable](values []T) map[T]bool {
	out := make(map[T]bool, len(values))
	for _, v := range values {
		out[v] = true
	}
	return out
}
