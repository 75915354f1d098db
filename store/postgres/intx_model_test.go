//go:build !race

package postgres_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider"
)

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
	switch m.random.IntN(15) {
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
		m.nested(ctx)
	case 11:
		batch := &pgx.Batch{}
		batch.Queue(insertOrder, 1)
		batch.Queue(insertOrder, 2)
		m.note("batch", m.tx.SendBatch(ctx, batch).Close())
	case 12:
		_, err := m.tx.CopyFrom(ctx, pgx.Identifier{"public", "orders"}, []string{"id"}, pgx.CopyFromRows([][]any{{int64(1)}, {int64(2)}}))
		m.note("copy", err)
	case 14:
		var n int
		err := m.tx.QueryRow(ctx, "select $1::text", "not a number").Scan(&n)
		m.note("scan", err)
	case 13:
		if m.random.IntN(4) == 0 {
			_, err := m.tx.Conn().Exec(ctx, insertOrder, 3)
			m.note(fmt.Sprintf("conn: %t", err == nil), nil) // of an aborted transaction, it may be closed
		}
	}
}

func (m *transactionModel) nested(ctx context.Context) {
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
}

// TestInTxModel runs the same random steps in a transaction of the store, which saves round trips, and in one of the pool, and
// compares every answer and what the database has in the end.
func TestInTxModel(t *testing.T) {
	t.Parallel()
	notInShort(t)
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
