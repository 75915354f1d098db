package postgres_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// slowCommits makes commits of orders wait for a lock, which it returns as a transaction.
func (b *bundle) slowCommits(t *testing.T) (lock pgx.Tx) {
	t.Helper()
	b.exec(t, `create table orders (id int);
		create function slow() returns trigger language plpgsql as 'begin perform pg_advisory_xact_lock(8472); return null; end';
		create constraint trigger slow after insert on orders deferrable initially deferred for each row execute function slow()`)
	lock, err := b.pool.Begin(t.Context())
	must(t, err)
	_, err = lock.Exec(t.Context(), `select pg_advisory_xact_lock(8472)`)
	must(t, err)
	return lock
}

// publishOrder publishes a message with an order.
func publishOrder[Tx any](
	t *testing.T, ctx context.Context, s store.Outbox[Tx], insert func(ctx context.Context, tx Tx, sql string) error,
) error {
	t.Helper()
	o, err := outbox.New(s, outbox.Config{Source: "shop"})
	must(t, err)
	_, err = o.InTx(ctx, func(ctx context.Context, tx Tx) error {
		if err := insert(ctx, tx, `insert into orders values (1)`); err != nil {
			return err
		}
		_, err := o.Publish(ctx, tx, &postrider.Message{Type: "order.placed", Key: "1"})
		return err
	})
	return err
}

func pgxExec(ctx context.Context, tx pgx.Tx, sql string) error {
	_, err := tx.Exec(ctx, sql)
	return err
}

// TestContextEndsWhileTheServerCommits: a COMMIT that was sent goes on, and the caller hears what became of it. Drivers of database/sql
// give it up, so that the caller hears that nobody knows.
func TestContextEndsWhileTheServerCommits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		want    error
		publish func(ctx context.Context, b *bundle) error
	}{
		"pgx": {nil, func(ctx context.Context, b *bundle) error { return publishOrder(t, ctx, b.Store, pgxExec) }},
		"database/sql": {store.ErrUncertain, func(ctx context.Context, b *bundle) error {
			return publishOrder(t, ctx, b.SQL(openDB(t, "pgx", b.dsn, 4)), func(ctx context.Context, tx *sql.Tx, query string) error {
				_, err := tx.ExecContext(ctx, query)
				return err
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := cloned(t, dsn(t), postgres.Config{}, 4)
			lock := b.slowCommits(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- c.publish(ctx, b) }()
			b.until(t, `select exists (select from pg_locks where locktype = 'advisory' and objid = 8472 and not granted
				and database = (select oid from pg_database where datname = current_database()))`)
			cancel()
			if c.want != nil {
				if err := <-done; !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				must(t, lock.Commit(t.Context()))
				return
			}
			select {
			case err := <-done:
				t.Errorf("the COMMIT was given up: %v", err)
			default:
			}
			must(t, lock.Commit(t.Context()))
			must(t, <-done)
			if n := one[int](t, b.pool, "select count(*)::int4 from "+b.table("log")); n != 1 {
				t.Errorf("%d messages, want 1", n)
			}
		})
	}
}

// TestCommitAfterTheContextHasEnded ends the transaction: a pool with one connection has it again.
func TestCommitAfterTheContextHasEnded(t *testing.T) {
	t.Parallel()
	b := cloned(t, dsn(t), postgres.Config{}, 1)
	db := openDB(t, "pgx", b.dsn, 1)
	on := b.SQL(db)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		tx, err := b.Begin(t.Context())
		must(t, err)
		if err := b.Commit(ended, tx); !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUncertain) {
			t.Errorf("got %v, want context.Canceled", err)
		}
		other, err := on.Begin(t.Context())
		must(t, err)
		if err := on.Commit(ended, other); !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUncertain) {
			t.Errorf("database/sql: got %v, want context.Canceled", err)
		}
	}
}

// TestAnswerToTheCommitIsLost: the caller is told that nobody knows, and the message is there.
func TestAnswerToTheCommitIsLost(t *testing.T) { //nolint:tparallel // all are counted at the end
	t.Parallel()
	b := cloned(t, dsn(t), postgres.Config{}, 4)
	b.exec(t, `create table orders (id int)`)
	for _, mode := range []string{"exec", "simple_protocol", "cache_describe"} { // nothing is prepared before
		t.Run(mode, func(t *testing.T) {
			b.losesAnswer(t, mode)
		})
	}
	if n := one[int](t, b.pool, "select count(*)::int4 from "+b.table("log")); n != 3 {
		t.Errorf("%d messages, want 3", n)
	}
}

func (b *bundle) losesAnswer(t *testing.T, mode string) {
	t.Helper()
	config, err := pgxpool.ParseConfig(withParam(t, b.dsn, "default_query_exec_mode", mode))
	must(t, err)
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &losesAnswer{Conn: conn}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	must(t, err)
	defer pool.Close()
	if err := publishOrder(t, t.Context(), open(t, pool, b.config), pgxExec); !errors.Is(err, store.ErrUncertain) {
		t.Errorf("got %v, want store.ErrUncertain", err)
	}
}

// losesAnswer breaks when the answer to a COMMIT of messages arrives.
type losesAnswer struct {
	net.Conn
	sent atomic.Bool
}

func (c *losesAnswer) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("order.placed")) && bytes.Contains(p, []byte("commit\x00")) {
		c.sent.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *losesAnswer) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.sent.Load() {
		return 0, errors.Join(io.ErrUnexpectedEOF, c.Conn.Close())
	}
	return n, err
}
