package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// lockSQL changes nothing but, being a write, takes the write lock. As the first statement of a transaction it does what BEGIN
// IMMEDIATE does, without a driver option: the transaction has read nothing yet, so it waits instead of failing when another one
// commits in between (SQLITE_BUSY_SNAPSHOT, where waiting does not help).
const lockSQL = `UPDATE {prefix}meta SET value = value WHERE 0`

// durability says whether a commit waits for the disk.
type durability bool

const (
	// durable commits as the connection is set; see PRAGMA synchronous.
	durable durability = true
	// relaxed commits do not wait for the disk. A power failure can undo them; a later durable commit makes them durable.
	relaxed durability = false
)

// txn is one transaction of the store.
type txn struct {
	s   *Store
	tx  *sql.Tx
	now int64 // the time of the transaction, in microseconds
}

func (t txn) exec(ctx context.Context, text string, args ...any) (int64, error) {
	var res sql.Result
	var err error
	if stmt := t.s.prepared[text]; stmt != nil {
		res, err = t.tx.StmtContext(ctx, stmt).ExecContext(ctx, args...)
	} else {
		res, err = t.tx.ExecContext(ctx, t.s.expand(text), args...)
	}
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (t txn) query(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	if stmt := t.s.prepared[text]; stmt != nil {
		return t.tx.StmtContext(ctx, stmt).QueryContext(ctx, args...)
	}
	return t.tx.QueryContext(ctx, t.s.expand(text), args...)
}

// asTx returns the transaction for what stores share.
func (t txn) asTx() stored.Tx { return stored.Tx{Query: t.query, Exec: t.exec} }

func (t txn) get(ctx context.Context, text string, args []any, dest ...any) error {
	return stored.Query(t.query).Get(ctx, text, args, dest...)
}

func (t txn) each(ctx context.Context, text string, args []any, scan func(*sql.Rows) error) error {
	return stored.Query(t.query).Each(ctx, text, args, scan)
}

// expand puts the table prefix into a statement.
func (s *Store) expand(text string) string { return strings.ReplaceAll(text, "{prefix}", s.cfg.Prefix) }

// read runs f in a transaction that sees one state of the database and never waits for a writer.
func (s *Store) read(ctx context.Context, doing string, f func(txn) error) error {
	return s.cfg.explain(doing, s.patiently(ctx, func() error {
		tx, err := s.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
		if err != nil {
			return err
		}
		defer tx.Rollback() // a read leaves nothing to commit
		return f(txn{s: s, tx: tx, now: s.now()})
	}))
}

// write runs f in a transaction that holds the write lock from the beginning. If another writer interferes, f may run more than
// once; what it did before is undone.
func (s *Store) write(ctx context.Context, doing string, d durability, f func(txn) error) error {
	return s.transact(ctx, doing, d, func(t txn) error {
		if _, err := t.exec(ctx, lockSQL); err != nil {
			return err
		}
		t.now = s.now() // after the wait for the lock
		return f(t)
	})
}

// transact is write without the lock at the beginning: f takes it with its first change, and runs again if another writer was
// faster.
func (s *Store) transact(ctx context.Context, doing string, d durability, f func(txn) error) error {
	s.turn.wait(ctx)
	defer s.turn.pass()
	return s.cfg.explain(doing, s.patiently(ctx, func() error {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		if d == relaxed {
			restore, err := relax(ctx, conn)
			if err != nil {
				return err
			}
			defer restore()
		}
		tx, err := conn.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // a no-op after Commit
		if err := f(txn{s: s, tx: tx, now: s.now()}); err != nil {
			return err
		}
		return tx.Commit()
	}))
}

// within runs part of a user's transaction. There is only one writer, so nothing here waits for another transaction: Begin has
// taken the write lock, and a transaction that the user began takes it with its first write.
func (s *Store) within(doing string, tx *sql.Tx, f func(txn) error) error {
	if tx == nil {
		return fmt.Errorf("%s: %w", doing, store.ErrNoTransaction)
	}
	return s.inTransaction(doing, f(txn{s: s, tx: tx, now: s.now()}))
}

// find is within for a function with a result.
func find[T any](s *Store, doing string, tx *sql.Tx, f func(txn) (T, error)) (out T, err error) {
	err = s.within(doing, tx, func(t txn) error {
		out, err = f(t)
		return err
	})
	return out, err
}

// relax makes commits on a connection not wait for the disk, until restore is called.
func relax(ctx context.Context, conn *sql.Conn) (restore func(), err error) {
	var level int
	if err := conn.QueryRowContext(ctx, `PRAGMA synchronous`).Scan(&level); err != nil {
		return nil, err
	}
	const normal = 1
	if level <= normal {
		return func() {}, nil
	}
	if _, err := conn.ExecContext(ctx, `PRAGMA synchronous = NORMAL`); err != nil {
		return nil, err
	}
	return func() {
		// Even if ctx has ended: this connection may serve a user's transaction next.
		_, err := conn.ExecContext(context.WithoutCancel(ctx), fmt.Sprintf(`PRAGMA synchronous = %d`, level))
		if err != nil {
			conn.Raw(func(any) error { return driver.ErrBadConn }) // closes the connection
		}
	}, nil
}

// patiently repeats f while another writer interferes, for up to BusyTimeout, pausing 1 ms at first and 10 ms at most. The
// driver's own busy_timeout, if set, makes f itself wait.
func (s *Store) patiently(ctx context.Context, f func() error) error {
	start := time.Now()
	for wait := time.Millisecond; ; wait = min(2*wait, 10*time.Millisecond) {
		err := s.incarnation.replaced()
		if err == nil {
			err = f()
		}
		if err == nil {
			return nil
		}
		if c := s.cfg.primary(err); c != codeBusy && c != codeLocked || time.Since(start) >= s.cfg.BusyTimeout {
			return err
		}
		timer := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(ctx.Err(), err)
		}
	}
}

// now is the database's clock, in microseconds.
func (s *Store) now() int64 { return s.cfg.Clock().UnixMicro() }
