package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
	"github.com/postrider/postrider/store/storetest"
)

var (
	inboxFeatures = storetest.Features{CoarseRetention: coarse, Statements: &statements}
	// again is for what has passed the suites over one way to the server.
	again = storetest.Features{CoarseRetention: coarse, Again: true}
)

// sqlBundle is a bundle with transactions of database/sql.
type sqlBundle struct {
	*postgres.SQLStore
	b *bundle
}

// sqlHarness uses a driver of database/sql.
func sqlHarness(dsn, driver string) storetest.Harness[*sql.Tx] {
	open := func(t testing.TB, b *bundle) *sqlBundle {
		source := b.dsn
		if driver == "postgres" { // lib/pq asks for TLS unless told otherwise
			source = withParam(t, source, "sslmode", "disable")
		}
		db, err := sql.Open(driver, source)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return &sqlBundle{SQLStore: b.SQL(db), b: b}
	}
	under := harness(dsn)
	return storetest.Harness[*sql.Tx]{
		Open: func(t testing.TB, partitions int) storetest.Store[*sql.Tx] {
			return open(t, under.Open(t, partitions).(*bundle))
		},
		Reopen: func(t testing.TB, s storetest.Store[*sql.Tx]) storetest.Store[*sql.Tx] {
			return open(t, under.Reopen(t, s.(*sqlBundle).b).(*bundle))
		},
		Savepoint: func(ctx context.Context, tx *sql.Tx, name string) error {
			_, err := tx.ExecContext(ctx, "savepoint "+name)
			return err
		},
		RollbackTo: func(ctx context.Context, tx *sql.Tx, name string) error {
			_, err := tx.ExecContext(ctx, "rollback to savepoint "+name)
			return err
		},
		InsertUndecodable: func(context.Context, storetest.Store[*sql.Tx], *sql.Tx, *postrider.Message) error {
			panic("no test of inboxes writes such rows")
		},
	}
}

func consumers(dsn string) inboxtest.Harness[pgx.Tx] {
	return inboxtest.Harness[pgx.Tx]{
		Open: func(t testing.TB) inboxtest.Store[pgx.Tx] {
			return killable{cloned(t, dsn, postgres.Config{Partitions: 4}, 40)}
		},
		MigrateWatermarks: func(t testing.TB, s inboxtest.Store[pgx.Tx], left []inboxtest.Watermark) {
			b := s.(killable).bundle
			migrate := func(to int) {
				if _, err := postgres.Migrate(t.Context(), b.pool, b.config, to); err != nil {
					t.Fatal(err)
				}
			}
			migrate(18)
			for _, w := range left {
				at := w.At
				b.exec(t, "insert into "+b.table("watermarks")+" (consumer, partition, epoch) values ($1, $2, $3)", w.Consumer, at.Partition, at.Incarnation)
				for n, offset := range []int64{at.Offset - 1, at.Offset} { // and the clock was set back between the two
					b.exec(t, "insert into "+b.table("watermark_moves")+" (consumer, partition, epoch, n, position, mark, moved_at) "+
						"values ($1, $2, $3, $4::bigint, $5, $6, clock_timestamp() - $4::bigint * interval '1 hour')", w.Consumer, at.Partition, at.Incarnation, int64(n), offset, at.Mark)
				}
			}
			migrate(postgres.Latest)
		},
		Histories: 4,
	}
}

func TestConsumersModel(t *testing.T) {
	t.Parallel()
	inboxtest.Model(t, consumers(dsn(t)))
}

// TestSavepointIsNotTheTransactionsEnd: earlier work in the transaction survives a handler that ends it.
func TestSavepointIsNotTheTransactionsEnd(t *testing.T) {
	t.Parallel()
	b, ctx := setup(t, postgres.Config{}), t.Context()
	b.exec(t, "create table "+b.table("done")+" (id text)")
	do := func(tx pgx.Tx, id string) error {
		_, err := tx.Exec(ctx, "insert into "+b.table("done")+" values ($1)", id)
		return err
	}
	tx, err := b.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := do(tx, "kept"); err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func(pgx.Tx) error{
		"commit":   func(tx pgx.Tx) error { return tx.Commit(ctx) },
		"rollback": func(tx pgx.Tx) error { return tx.Rollback(ctx) },
		"failure":  func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "select 1/0"); return err },
	} {
		if err := b.Savepoint(ctx, tx, func(_ context.Context, tx pgx.Tx) error {
			err := do(tx, "undone by "+name)
			_ = end(tx) // swallowed
			return err
		}); err == nil {
			t.Errorf("%s within a savepoint was no failure", name)
		}
	}
	if err := b.Commit(ctx, tx); err != nil {
		t.Fatal(err)
	}
	if got := one[string](t, b.pool, "select string_agg(id, ',') from "+b.table("done")); got != "kept" {
		t.Errorf("committed %s, want what stood before the savepoints", got)
	}
}

// TestRestoreLeavesConsumersAtTheEndOfTheLog: they read nothing of the log, and its sequence does not move to their position.
func TestRestoreLeavesConsumersAtTheEndOfTheLog(t *testing.T) {
	t.Parallel()
	b, ctx := setup(t, postgres.Config{Partitions: 2}), t.Context()
	if err := b.Enroll(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	b.exec(t, "update "+b.table("meta")+" set system_identifier = 42")
	if _, err := b.Heartbeat(ctx, "c", store.Owner{ID: "a"}, longTTL); err != nil {
		t.Fatal(err)
	}
	if err := b.Enroll(ctx, "c"); err != nil {
		t.Errorf("enroll again: %v", err)
	}
	if n := one[int64](t, b.pool, "select last_value from "+b.table("log_seq_seq")); n > 1_000 {
		t.Errorf("the log's sequence is at %d", n)
	}
}

// TestConsumerThatSleptParksInPresentPartitions: another process changed the number of partitions.
func TestConsumerThatSleptParksInPresentPartitions(t *testing.T) {
	t.Parallel()
	b, ctx := setup(t, postgres.Config{Partitions: 8}), t.Context()
	other := open(t, b.pool, postgres.Config{Schema: b.config.Schema})
	if err := other.Enroll(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	if err := b.Repartition(ctx, 2); err != nil {
		t.Fatal(err)
	}
	park := func(key string) error {
		tx, err := other.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = other.Rollback(ctx, tx) }()
		m := &postrider.Message{ID: key, Type: "t", Topic: "t", Source: "s", Key: key, ContentType: "text/plain", Time: time.Now()}
		err = other.Park(ctx, tx, "c", []store.ParkRequest{{Message: m, Reason: store.ParkRetry}})
		if err != nil {
			return err
		}
		return other.Commit(ctx, tx)
	}
	for i := range 8 {
		key := fmt.Sprint("k", i)
		if err := park(key); errors.Is(err, store.ErrRepartitioned) && i == 0 {
			err = park(key)
			if err != nil {
				t.Fatal(err)
			}
		} else if err != nil || i == 0 {
			t.Fatalf("park %s: %v; want that the first is to be run again", key, err)
		}
	}
	if n := one[int64](t, b.pool, "select count(*) from "+b.table("parked")+" where partition < 2"); n != 8 {
		t.Errorf("%d of 8 messages are in partitions that there are", n)
	}
}
