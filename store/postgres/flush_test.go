//go:build !race

package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// asynchronous is a publisher whose commits do not wait for the disk.
type asynchronous struct {
	b    *bundle
	pool *pgxpool.Pool
}

func (b *bundle) asynchronous(t testing.TB) asynchronous {
	t.Helper()
	return asynchronous{b, newPool(t, withParam(t, dsn(t), "synchronous_commit", "off"), 4)}
}

// publish commits a message and returns where its commit ends in the write-ahead log, at the latest.
func (a asynchronous) publish(t testing.TB) (lsn string) {
	t.Helper()
	a.exec(t, fmt.Sprintf("select %s('t', 'k', 'x', '{}'::text)", a.b.table("publish")))
	return one[string](t, a.pool, "select pg_current_wal_insert_lsn()::text")
}

func (a asynchronous) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := a.pool.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// flushed returns whether the write-ahead log is flushed up to a place.
func (b *bundle) flushed(t testing.TB, lsn string) bool {
	t.Helper()
	return one[bool](t, b.pool, "select pg_current_wal_flush_lsn() >= $1::text::pg_lsn", lsn)
}

// TestFlushPrecedesDelivery: without the option, a fetch returns messages whose commit is not on disk. With it, their
// commit is on disk when the fetch returns, and all of them are returned at once.
func TestFlushPrecedesDelivery(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("after flush %v", after), func(t *testing.T) {
			t.Parallel()
			b := setup(t, postgres.Config{Partitions: 1, DeliverAfterFlush: after})
			flushPrecedes(t, b, after)
		})
	}
}

func flushPrecedes(t *testing.T, b *bundle, after bool) {
	t.Helper()
	publisher, req := b.asynchronous(t), request(b.lease(t, "r"), 10)
	// Other tests and the WAL writer flush too: until the flush is later than the commit, or the fetch.
	before, early := 0, 0
	for n := 0; before == 0 || early == 0 && !after || n < 50; n++ {
		if n == 10_000 {
			t.Fatalf("of %d messages, %d were not flushed before the fetch, %d not after it", n, before, early)
		}
		lsn := publisher.publish(t)
		if !b.flushed(t, lsn) {
			before++
		}
		if got := b.advance(t, &req); got[0] != 1 {
			t.Fatalf("message %d: a fetch returned %d", n, got[0])
		}
		if b.flushed(t, lsn) {
			continue
		}
		early++
		if after {
			t.Fatalf("message %d was returned before the log was flushed up to %s", n, lsn)
		}
	}
}

// TestFlushCoversLateMessages: messages that commit late are on disk too, and so is each page of a bulk.
func TestFlushCoversLateMessages(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 1, DeliverAfterFlush: true})
	publisher, req := b.asynchronous(t), request(b.lease(t, "r"), 10)
	ctx := t.Context()
	for range 20 {
		late, err := publisher.pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for range 15 {
			if _, err := late.Exec(ctx, fmt.Sprintf("select %s('t', 'k', 'x', '{}'::text)", b.table("publish"))); err != nil {
				t.Fatal(err)
			}
		}
		publisher.publish(t)
		if got := b.advance(t, &req); got[0] != 1 {
			t.Fatalf("%d messages, want the one that is committed", got[0])
		}
		if err := late.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		lsn := one[string](t, publisher.pool, "select pg_current_wal_insert_lsn()::text")
		total := 0
		for range 3 {
			total += b.advance(t, &req)[0]
			if !b.flushed(t, lsn) {
				t.Fatal("late messages were returned before their commit was flushed")
			}
		}
		if total != 15 {
			t.Fatalf("%d late messages, want 15", total)
		}
	}
}

// TestFlushOnlyForMessages: a fetch that finds nothing writes nothing, nor does one that finds what is flushed.
func TestFlushOnlyForMessages(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 1, DeliverAfterFlush: true})
	publisher, req := b.asynchronous(t), request(b.lease(t, "r"), 10)
	locker := func() string {
		return one[string](t, b.pool, "select xmax::text from "+b.table("relay_partitions"))
	}
	for tries := 0; locker() == "0"; tries++ { // until a fetch had to flush
		if tries == 10_000 {
			t.Fatal("no fetch had to flush")
		}
		publisher.publish(t)
		b.advance(t, &req)
	}
	before := locker()
	for range 100 {
		publisher.exec(t, "select pg_current_xact_id()") // a commit that need not be on disk
		if got := b.advance(t, &req); got[0] != 0 {
			t.Fatalf("%d messages, want none", got[0])
		}
	}
	if l := locker(); l != before {
		t.Errorf("a fetch without messages wrote: transaction %s after %s", l, before)
	}
}

// TestFlushChecksTheLeaseAgain: if the lease ends between reading and flushing, as in a crash, no message is returned.
func TestFlushChecksTheLeaseAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 1, DeliverAfterFlush: true})
	publisher := b.asynchronous(t)
	for name, end := range map[string]string{
		"lease ended":   fmt.Sprintf("delete from %s", b.table("leases")),
		"relay removed": fmt.Sprintf("delete from %s", b.table("relay_partitions")),
	} {
		for tries := 0; ; tries++ { // until the log is not flushed when the fetch reads
			if tries == 10_000 {
				t.Fatalf("%s: the log was always flushed", name)
			}
			relayName := fmt.Sprintf("%s %d", name, tries)
			req := request(b.lease(t, relayName), 10)
			publisher.publish(t)
			batches, err := b.FetchWith(t.Context(), relayName, req, func() { publisher.exec(t, end) })
			if err != nil || len(batches) != 1 {
				t.Fatalf("%s: %+v, %v", name, batches, err)
			}
			if batches[0].Lost {
				if len(batches[0].Entries) > 0 {
					t.Errorf("%s: a lost partition has messages", name)
				}
				break
			}
		}
	}
}

// TestFlushWithEveryProtocol: the same over the simple protocol, and behind a pooler that does not prepare statements.
func TestFlushWithEveryProtocol(t *testing.T) {
	t.Parallel()
	pgbouncer := startPgBouncer(t)
	for name, url := range map[string]string{
		"simple protocol": withParam(t, dsn(t), "default_query_exec_mode", "simple_protocol"),
		"exec":            withParam(t, pgbouncer, "default_query_exec_mode", "exec"),
		"cache describe":  withParam(t, pgbouncer, "default_query_exec_mode", "cache_describe"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flushPrecedes(t, setupOn(t, url, postgres.Config{Partitions: 1, DeliverAfterFlush: true}), true)
		})
	}
}

// TestFlushIsNotForReaders: a reader without leases writes nothing and gets its messages at once.
func TestFlushIsNotForReaders(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 1, DeliverAfterFlush: true})
	publisher := b.asynchronous(t)
	for range 20 {
		publisher.publish(t)
	}
	batches, err := b.Fetch(t.Context(), "", store.FetchRequest{Partitions: []store.FetchPartition{{}}, Limit: 100, MaxBytes: 1 << 20})
	if err != nil || len(batches) != 1 || len(batches[0].Entries) != 20 {
		t.Fatalf("%+v, %v", batches, err)
	}
}
