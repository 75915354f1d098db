//go:build !race

package postgres_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// ordersBundle is a store, an outbox on it, and a table of orders.
type ordersBundle struct {
	*bundle
	*outbox.Outbox[pgx.Tx]
}

func setupOrders(t *testing.T, dsn string) ordersBundle {
	t.Helper()
	b := cloned(t, dsn, postgres.Config{}, 4)
	b.exec(t, "create table public.orders (id bigint)")
	o, err := outbox.New(b.Store, outbox.Config{Source: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	return ordersBundle{b, o}
}

func orderPlaced(id string) *postrider.Message {
	return &postrider.Message{ID: id, Type: "order.placed", Key: "order/1", ContentType: "application/json", Payload: []byte(`{}`)}
}

func (b ordersBundle) publish(ctx context.Context, tx pgx.Tx, kind string) error {
	m := orderPlaced("x")
	m.Type = kind
	_, err := b.Publish(ctx, tx, m)
	return err
}

// written returns the orders, and the IDs of the messages in order.
func (b ordersBundle) written(t *testing.T) (orders int, ids []string) {
	t.Helper()
	orders = one[int](t, b.pool, "select count(*) from public.orders")
	return orders, one[[]string](t, b.pool, "select coalesce(array_agg(id order by seq), '{}') from "+b.table("log"))
}

func (b ordersBundle) want(t *testing.T, orders int, ids ...string) {
	t.Helper()
	if n, got := b.written(t); n != orders || !slices.Equal(got, ids) {
		t.Errorf("the database has %d orders and the messages %q, want %d and %q", n, got, orders, ids)
	}
}

const insertOrder = "insert into public.orders values ($1)"

// flushes counts what is sent to the server.
type flushes struct {
	net.Conn
	n *atomic.Int64
}

func (c flushes) Write(b []byte) (int, error) {
	c.n.Add(1)
	return c.Conn.Write(b)
}

// countedOutbox returns an outbox with one connection of its own, and counts what is sent on it.
func countedOutbox(t *testing.T, b ordersBundle, n *atomic.Int64) *outbox.Outbox[pgx.Tx] {
	t.Helper()
	config := b.pool.Config()
	config.MaxConns = 1
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return flushes{conn, n}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	quiet := b.config
	quiet.NotifyEvery = -1 // only the transaction counts
	o, err := outbox.New(open(t, pool, quiet), outbox.Config{Source: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestInTxRoundTrips counts them: BEGIN goes with the first statement, messages with the next one or with COMMIT.
func TestInTxRoundTrips(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	o := countedOutbox(t, setupOrders(t, dsn(t)), &n)
	publish := func(ctx context.Context, tx pgx.Tx) error {
		_, err := o.Publish(ctx, tx, &postrider.Message{Type: "order.placed", Key: "1"})
		return err
	}
	order := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, insertOrder, 1)
		return err
	}
	read := func(ctx context.Context, tx pgx.Tx) error {
		var n int
		return tx.QueryRow(ctx, "select count(*) from public.orders where id = $1", 1).Scan(&n)
	}
	type step = func(ctx context.Context, tx pgx.Tx) error
	for _, c := range []struct {
		name  string
		steps []step
		want  int64
	}{
		{"nothing", nil, 0},
		{"a message", []step{publish}, 1},
		{"an order", []step{order}, 2},
		{"an order and its message", []step{order, publish}, 2},
		{"a message and its order", []step{publish, order}, 2},
		{"an order, two messages", []step{order, publish, publish}, 2},
		{"read, order, message", []step{read, order, publish}, 3},
		{"order, message, read, message", []step{order, publish, read, publish}, 3},
	} {
		run := func() int64 {
			before := n.Load()
			if _, err := o.InTx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
				for _, s := range c.steps {
					if err := s(ctx, tx); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			return n.Load() - before
		}
		run() // prepares the statements
		if got := run(); got != c.want {
			t.Errorf("%s: %d round trips, want %d", c.name, got, c.want)
		}
	}
}

func TestInTxCopiesPayloads(t *testing.T) {
	t.Parallel()
	b := setupOrders(t, dsn(t))
	buffer := []byte(`{"n":1}`)
	if _, err := b.InTx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		m := orderPlaced("a")
		m.Payload = buffer
		_, err := b.Publish(ctx, tx, m)
		more, another := orderPlaced("b"), orderPlaced("c")
		more.Payload, another.Payload = buffer, buffer
		_, errMany := b.Publish(ctx, tx, more, another)
		copy(buffer, "xxxxxxx")
		return errors.Join(err, errMany)
	}); err != nil {
		t.Fatal(err)
	}
	for _, e := range b.all(t) {
		if got := string(e.Message.Payload); got != `{"n":1}` {
			t.Errorf("the payload of %s is %s", e.Message.ID, got)
		}
	}
}

// TestInTxReadOnly: a session that cannot write says so when a message is published.
func TestInTxReadOnly(t *testing.T) {
	t.Parallel()
	b := setupOrders(t, dsn(t))
	pool := newPool(t, withParam(t, b.dsn, "default_transaction_read_only", "on"), 1)
	o, err := outbox.New(open(t, pool, b.config), outbox.Config{Source: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = o.InTx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		_, err := o.Publish(ctx, tx, orderPlaced("a"))
		if err == nil {
			t.Error("Publish succeeded")
		}
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "read-only session") {
		t.Error(err)
	}
}

func TestInTxAfterTheEnd(t *testing.T) {
	t.Parallel()
	b := setupOrders(t, dsn(t))
	var kept pgx.Tx
	if _, err := b.InTx(t.Context(), func(_ context.Context, tx pgx.Tx) error { kept = tx; return nil }); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	_, exec := kept.Exec(ctx, insertOrder, 1)
	_, query := kept.Query(ctx, "select $1::int", 1)
	_, begin := kept.Begin(ctx)
	_, published := b.Publish(ctx, kept, orderPlaced("a"))
	_, prepare := kept.Prepare(ctx, "", "select 1")
	large := kept.LargeObjects()
	_, object := large.Create(ctx, 0)
	for name, err := range map[string]error{
		"Exec": exec, "Query": query, "Begin": begin, "Prepare": prepare, "QueryRow": kept.QueryRow(ctx, "select 1").Scan(),
		"Commit": kept.Commit(ctx), "Rollback": kept.Rollback(ctx), "SendBatch": kept.SendBatch(ctx, &pgx.Batch{}).Close(), "LargeObjects": object,
	} {
		if !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !errors.Is(published, store.ErrNoTransaction) {
		t.Errorf("Publish: %v", published)
	}
	b.want(t, 0)
}

// TestInTxAfterARollback: what a function has kept of its transaction executes nothing after the rollback, on a connection that belongs to
// others by then.
func TestInTxAfterARollback(t *testing.T) {
	t.Parallel()
	b := setupOrders(t, dsn(t))
	ctx, wrong := t.Context(), errors.New("wrong")
	for name, keep := range map[string]func(tx pgx.Tx) (late func() error){
		"savepoint": func(tx pgx.Tx) func() error {
			inner, err := tx.Begin(ctx)
			must(t, err)
			return func() error { _, err := inner.Exec(ctx, insertOrder, 1); return err }
		},
		"large objects": func(tx pgx.Tx) func() error {
			large := tx.LargeObjects()
			return func() error { _, err := large.Create(ctx, 0); return err }
		},
		"savepoint of a transaction that the server has ended": func(tx pgx.Tx) func() error {
			inner, err := tx.Begin(ctx)
			must(t, err)
			_, err = tx.Exec(ctx, "rollback")
			must(t, err)
			return func() error { _, err := inner.Exec(ctx, insertOrder, 1); return err }
		},
	} {
		var late func() error
		if _, err := b.InTx(ctx, func(_ context.Context, tx pgx.Tx) error { late = keep(tx); return wrong }); !errors.Is(err, wrong) {
			t.Fatalf("%s: %v", name, err)
		}
		if err := late(); !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("%s: %v, want pgx.ErrTxClosed", name, err)
		}
	}
	b.want(t, 0)
}
