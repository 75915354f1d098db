package postgres_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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

// TestInTxRoundTrips counts them: BEGIN goes with the first statement, messages with the next one or with COMMIT.
func TestInTxRoundTrips(t *testing.T) {
	t.Parallel()
	b := setupOrders(t, dsn(t))
	var n atomic.Int64
	config := b.pool.Config()
	config.MaxConns = 1
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return flushes{conn, &n}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	o, err := outbox.New(open(t, pool, b.config), outbox.Config{Source: "shop"})
	if err != nil {
		t.Fatal(err)
	}
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

// modes are the ways in which pgx executes statements.
var modes = []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"}

// TestInTxErrors finds out where each error comes up, that nothing is written then, and that the connection is used again.
func TestInTxErrors(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := setupOrders(t, withParam(t, dsn(t), "default_query_exec_mode", mode))
			b.exec(t, `create function public.refuse() returns trigger language plpgsql as $$ begin
				if new.type = 'vanish' then return null; end if;
				if new.type = 'refuse' then raise exception 'refused' using errcode = 'XX001'; end if;
				return new; end $$`)
			b.exec(t, "create trigger refuse before insert on "+b.table("log")+" for each row execute function public.refuse()")
			b.exec(t, `create table public.late (id bigint primary key, other bigint references public.late deferrable initially deferred)`)
			inTx := func(do func(ctx context.Context, tx pgx.Tx) error) error {
				_, err := b.InTx(t.Context(), do)
				return err
			}
			publish := func(ctx context.Context, tx pgx.Tx, kind string) error {
				m := orderPlaced("x")
				m.Type = kind
				_, err := b.Publish(ctx, tx, m)
				return err
			}
			for _, c := range []struct {
				name, want string
				do         func(ctx context.Context, tx pgx.Tx) error
			}{
				{"refused at commit", "commit transaction: commit: insert messages: ERROR: refused", func(ctx context.Context, tx pgx.Tx) error {
					_, err := tx.Exec(ctx, insertOrder, 1)
					return errors.Join(err, publish(ctx, tx, "refuse"))
				}},
				{"refused before the next statement", "insert messages: ERROR: refused", func(ctx context.Context, tx pgx.Tx) error {
					if err := publish(ctx, tx, "refuse"); err != nil {
						t.Errorf("Publish: %v", err)
					}
					_, err := tx.Exec(ctx, insertOrder, 1)
					return err
				}},
				{"refused, and the error ignored", "commit unexpectedly resulted in rollback", func(ctx context.Context, tx pgx.Tx) error {
					_ = publish(ctx, tx, "refuse")
					_, _ = tx.Exec(ctx, insertOrder, 1)
					return nil
				}},
				{"not written at commit", "look for a trigger or rule", func(ctx context.Context, tx pgx.Tx) error {
					_, err := tx.Exec(ctx, insertOrder, 1)
					return errors.Join(err, publish(ctx, tx, "vanish"))
				}},
				{"not written before a statement", "look for a trigger or rule", func(ctx context.Context, tx pgx.Tx) error {
					_ = publish(ctx, tx, "vanish")
					_, err := tx.Exec(ctx, insertOrder, 1)
					return err
				}},
				{"not written, and the error ignored", "commit unexpectedly resulted in rollback", func(ctx context.Context, tx pgx.Tx) error {
					_ = publish(ctx, tx, "vanish")
					_, _ = tx.Exec(ctx, insertOrder, 1)
					_, _ = tx.Exec(ctx, insertOrder, 1)
					return nil
				}},
				{"a parameter that cannot be encoded", "unable to encode", func(ctx context.Context, tx pgx.Tx) error {
					_ = publish(ctx, tx, "order.placed")
					_, err := tx.Exec(ctx, insertOrder, make(chan int))
					return errIf(err, "unable to encode", "cannot convert")
				}},
				{"a constraint that commit checks", "late_other_fkey", func(ctx context.Context, tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "insert into public.late values ($1, $2)", 1, 2)
					return errors.Join(err, publish(ctx, tx, "order.placed"))
				}},
				{"a first statement with a mistake", "syntax error", func(ctx context.Context, tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "selec $1", 1)
					return err
				}},
				{"a first statement with a mistake, ignored", "commit unexpectedly resulted in rollback", func(ctx context.Context, tx pgx.Tx) error {
					_, _ = tx.Exec(ctx, "selec $1", 1)
					_, err := tx.Exec(ctx, insertOrder, 1)
					if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != failedTransaction {
						t.Errorf("in an aborted transaction: %v", err)
					}
					if err := publish(ctx, tx, "order.placed"); err == nil {
						t.Error("Publish in an aborted transaction succeeded")
					}
					return nil
				}},
				{"the context ended", "context canceled", nil},
			} {
				err := error(nil)
				if c.do != nil {
					err = inTx(c.do)
				} else {
					ctx, cancel := context.WithCancel(t.Context())
					_, err = b.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
						_, err := tx.Exec(ctx, insertOrder, 1)
						cancel()
						return errors.Join(err, publish(ctx, tx, "order.placed"))
					})
				}
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %v, want %q", c.name, err, c.want)
				}
				b.want(t, 0)
			}
			if err := inTx(func(ctx context.Context, tx pgx.Tx) error { return publish(ctx, tx, "order.placed") }); err != nil {
				t.Error(err)
			}
			b.want(t, 0, "x")
			if n := b.pool.Stat().NewConnsCount(); n > int64(b.pool.Config().MaxConns) {
				t.Errorf("%d connections were opened: some were closed on the way", n)
			}
		})
	}
}

// errIf replaces an error that has one of several texts by the first of them.
func errIf(err error, texts ...string) error {
	for _, text := range texts {
		if err != nil && strings.Contains(err.Error(), text) {
			return errors.New(texts[0])
		}
	}
	return err
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

// TestInTxRows reads results that come after BEGIN and messages in the same round trip.
func TestInTxRows(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := setupOrders(t, withParam(t, dsn(t), "default_query_exec_mode", mode))
			_, err := b.InTx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
				for n := range 3 {
					if _, err := b.Publish(ctx, tx, orderPlaced(fmt.Sprint(n))); err != nil {
						return err
					}
					rows, err := tx.Query(ctx, "select generate_series(1, $1::int)", 1000)
					if err != nil {
						return err
					}
					if n == 0 { // not read to the end
						rows.Next()
						if _, err := b.Publish(ctx, tx, orderPlaced("meanwhile")); err != nil {
							return err
						}
						if _, err := tx.Exec(ctx, insertOrder, 1); err == nil {
							t.Error("a statement was executed while rows were read")
						}
						rows.Close()
						if err := rows.Err(); err != nil {
							return err
						}
						continue
					}
					if all, err := pgx.CollectRows(rows, pgx.RowTo[int]); err != nil || len(all) != 1000 || rows.CommandTag().RowsAffected() != 1000 {
						return fmt.Errorf("%d rows, %w", len(all), err)
					}
				}
				var none int
				if err := tx.QueryRow(ctx, "select id from public.orders where id = $1", 7).Scan(&none); !errors.Is(err, pgx.ErrNoRows) {
					t.Errorf("no row: %v", err)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			b.want(t, 0, "0", "meanwhile", "1", "2")
			_, err = b.InTx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
				_, _ = b.Publish(ctx, tx, orderPlaced("lost"))
				var n int
				return tx.QueryRow(ctx, "select 1 / $1::int", 0).Scan(&n)
			})
			if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "22012" {
				t.Errorf("division by zero: %v", err)
			}
		})
	}
}

var pipelinedSeeds = flag.Int("pipelined.seeds", 150, "histories of TestInTxModel")

// transactionModel runs random steps in a transaction. What they return must not depend on who began it.
type transactionModel struct {
	b      ordersBundle
	tx     pgx.Tx
	random *rand.Rand
	ids    int
	points int
	log    []string
}

func (m *transactionModel) note(name string, err error) {
	result := codeOf(err)
	if result == syntaxError { // which the server finds before it looks whether the transaction is aborted
		result = failedTransaction
	}
	m.log = append(m.log, name+": "+result)
}

const (
	syntaxError       = "42601"
	failedTransaction = "25P02"
)

// codeOf is what two errors of the same cause have in common.
func codeOf(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	if err != nil {
		return "error"
	}
	return "ok"
}

func (m *transactionModel) publish(ctx context.Context, tx pgx.Tx) {
	var msgs []*postrider.Message
	for range 1 + m.random.IntN(3) {
		m.ids++
		msgs = append(msgs, orderPlaced(fmt.Sprintf("m%03d", m.ids)))
	}
	if m.random.IntN(20) == 0 {
		msgs[0].Payload = []byte(`"` + strings.Repeat("x", 300<<10) + `"`) // does not wait
	}
	_, err := m.b.Publish(ctx, tx, msgs...)
	m.note("publish", err)
}

func (m *transactionModel) step(ctx context.Context) {
	exec := func(name, sql string, args ...any) {
		_, err := m.tx.Exec(ctx, sql, args...)
		m.note(name, err)
	}
	switch m.random.IntN(14) {
	case 0, 1, 2, 3:
		m.publish(ctx, m.tx)
	case 4:
		exec("order", insertOrder, m.random.IntN(100))
	case 5:
		m.ids++
		exec("publish by SQL", "select "+m.b.config.Schema+".postrider_publish(topic => 'sql', key => 'order/1', type => 't', payload => $1::text::bytea, id => $2::text)",
			"{}", fmt.Sprintf("s%03d", m.ids))
	case 6:
		var n int
		err := m.tx.QueryRow(ctx, "select count(*) from "+m.b.table("log")+" where topic <> $1", "").Scan(&n)
		m.note(fmt.Sprintf("%d messages", n), err)
	case 7:
		_, err := m.tx.Exec(ctx, fmt.Sprintf("savepoint p%d", m.points+1))
		m.note("savepoint", err)
		if err == nil {
			m.points++
		}
	case 8:
		if m.points > 0 {
			exec("rollback to", fmt.Sprintf("rollback to p%d", m.points))
		}
	case 9:
		exec("mistake", []string{"select 1 / $1::int", "selec $1"}[m.random.IntN(2)], 0)
	case 10:
		inner, err := m.tx.Begin(ctx)
		m.note("begin", err)
		if err != nil {
			return
		}
		m.publish(ctx, inner)
		m.publish(ctx, m.tx)
		if m.random.IntN(2) == 0 {
			m.note("release", inner.Commit(ctx))
		} else {
			m.note("undo", inner.Rollback(ctx))
		}
	case 11:
		batch := &pgx.Batch{}
		batch.Queue(insertOrder, 1)
		batch.Queue(insertOrder, 2)
		m.note("batch", m.tx.SendBatch(ctx, batch).Close())
	case 12:
		_, err := m.tx.CopyFrom(ctx, pgx.Identifier{"public", "orders"}, []string{"id"}, pgx.CopyFromRows([][]any{{int64(1)}, {int64(2)}}))
		m.note("copy", err)
	case 13:
		if m.random.IntN(4) == 0 {
			_, err := m.tx.Conn().Exec(ctx, insertOrder, 3)
			m.note(fmt.Sprintf("conn: %t", err == nil), nil) // of an aborted transaction, it may be closed
		}
	}
}

// TestInTxModel runs the same random steps in a transaction of the store, which saves round trips, and in one of the pool, and
// compares every answer and what the database has in the end.
func TestInTxModel(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := setupOrders(t, withParam(t, dsn(t), "default_query_exec_mode", mode))
			ctx := t.Context()
			run := func(seed uint64, begin func(ctx context.Context) (pgx.Tx, error)) []string {
				b.exec(t, "truncate public.orders, "+b.table("log"))
				tx, err := begin(ctx)
				if err != nil {
					t.Fatal(err)
				}
				m := &transactionModel{b: b, tx: tx, random: rand.New(rand.NewPCG(seed, 1))}
				for range 1 + m.random.IntN(12) {
					m.step(ctx)
				}
				if m.random.IntN(8) == 0 {
					m.note("rollback", tx.Rollback(ctx))
				} else {
					m.note("commit", tx.Commit(ctx))
				}
				orders, ids := b.written(t)
				return append(m.log, fmt.Sprintf("%d orders, messages %q", orders, ids))
			}
			for seed := range uint64(*pipelinedSeeds) {
				ours := run(seed, b.BeginPipelined)
				plain := run(seed, func(ctx context.Context) (pgx.Tx, error) {
					return b.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
				})
				if !slices.Equal(ours, plain) {
					t.Fatalf("seed %d:\n%s\nwant\n%s", seed, strings.Join(ours, "\n"), strings.Join(plain, "\n"))
				}
			}
		})
	}
}
