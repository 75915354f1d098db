package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/postgres"
	"github.com/postrider/postrider/store/storetest"
)

// onDB is a store on a *sql.DB alone.
type onDB struct {
	*postgres.SQLStore
	b *bundle
}

// openDB opens a database of a bundle with at most n connections; 0: any number.
func openDB(t testing.TB, driver, dsn string, n int) *sql.DB {
	t.Helper()
	if driver == "postgres" { // lib/pq asks for TLS unless told otherwise
		dsn = withParam(t, dsn, "sslmode", "disable")
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(n)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func openOnDB(t testing.TB, b *bundle, n int) *onDB {
	t.Helper()
	s, err := postgres.NewSQL(openDB(t, "pgx", b.dsn, n), b.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := s.Open(context.Background()); err != nil {
		t.Fatal(err)
	}
	return &onDB{s, b}
}

func onDBHarness(dsn string) storetest.Harness[*sql.Tx] {
	h, under := sqlHarness(dsn, "pgx"), harness(dsn)
	h.Open = func(t testing.TB, partitions int) storetest.Store[*sql.Tx] {
		return openOnDB(t, under.Open(t, partitions).(*bundle), 16)
	}
	h.Reopen = func(t testing.TB, s storetest.Store[*sql.Tx]) storetest.Store[*sql.Tx] {
		return openOnDB(t, s.(*onDB).b, 16)
	}
	h.InsertUndecodable = func(ctx context.Context, s storetest.Store[*sql.Tx], tx *sql.Tx, m *postrider.Message) error {
		b := s.(*onDB).b
		n, err := b.Partitions(ctx)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, fmt.Sprintf(`insert into %s (partition, id, topic, key, type, headers)
			values ($1::int4, $2::text, $3::text, $4::text, $5::text, '{"a": {"b": 1}}')`, b.table("log")),
			postrider.PartitionOf(m.Key, m.ID, n), m.ID, m.Topic, m.Key, m.Type)
		return err
	}
	return h
}

// TestServiceOnSQLDB: outbox, relay and consumer work on a *sql.DB with few connections, and return all of them.
func TestServiceOnSQLDB(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	db := openDB(t, "pgx", b.dsn, 4)
	s, err := postgres.NewSQL(db, b.config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	box, err := outbox.New(s, outbox.Config{Source: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	broker, err := memorybroker.New(memorybroker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := relay.New(s, relay.Config{Name: "to-broker", Publisher: broker})
	if err != nil {
		t.Fatal(err)
	}
	c, done := consumerOnDB(t, s, broker)
	ended := make(chan error, 2)
	go func() { ended <- r.Run(ctx) }()
	go func() { ended <- c.Run(ctx) }()
	const count = 200
	for i := range count {
		if _, err := box.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := box.Publish(ctx, tx, &postrider.Message{Type: "order.placed", Topic: "orders", Key: fmt.Sprint(i % 7)})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; n < count; n++ {
		select {
		case <-done:
		case <-ctx.Done():
			t.Fatalf("%d of %d messages were processed", n, count)
		}
	}
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	s.Close()
	if n := db.Stats().InUse; n != 0 {
		t.Errorf("%d connections were not returned", n)
	}
}

func consumerOnDB(t *testing.T, s *postgres.SQLStore, broker *memorybroker.Broker) (*inbox.Consumer[*sql.Tx], <-chan struct{}) {
	t.Helper()
	in, err := inbox.New[*sql.Tx](s)
	if err != nil {
		t.Fatal(err)
	}
	subscriber, err := broker.Subscriber(memorybroker.SubscriberConfig{Group: "view", Topics: []string{"orders"}, Partitions: 4})
	if err != nil {
		t.Fatal(err)
	}
	c, err := inbox.NewConsumer(in, subscriber, inbox.ConsumerConfig{Name: "view"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{}, 1000)
	var failed atomic.Bool
	err = c.HandleFunc("order.placed", func(ctx context.Context, tx *sql.Tx, _ *postrider.Message) error {
		if failed.CompareAndSwap(false, true) {
			return errors.New("once") // so that a message is parked
		}
		_, err := tx.ExecContext(ctx, "select 1")
		done <- struct{}{}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, done
}

// TestBrokenConnectionOfSQLDB: connections that the server has ended, or that are left in a transaction, are not used again.
func TestBrokenConnectionOfSQLDB(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	db := openDB(t, "pgx", b.dsn, 3)
	s, err := postgres.NewSQL(db, b.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	ctx := t.Context()
	for range 5 {
		tx, err := s.Store.Begin(ctx) // of pgx, on the same connections
		if err != nil {
			t.Fatal(err)
		}
		pid := one[int](t, tx, "select pg_backend_pid()")
		b.exec(t, "select pg_terminate_backend($1::int4, 10000)", pid)
		if err := s.Store.Rollback(ctx, tx); err == nil {
			t.Error("the rollback on an ended connection succeeded")
		}
		if _, err := s.Status(ctx); err != nil {
			t.Error(err)
		}
	}
	canceled, cancel := context.WithCancel(ctx)
	tx, err := s.Store.BeginLimited(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := tx.Exec(canceled, "select pg_sleep(1)"); err == nil {
		t.Error("a statement with an ended context succeeded")
	}
	if err := s.Store.Rollback(ctx, tx); err != nil {
		t.Error(err)
	}
	if n := db.Stats().InUse; n != 0 {
		t.Errorf("%d connections were not returned", n)
	}
}

// TestOtherDriverOnSQLDB: with lib/pq, publishing and processing in the caller's transaction work, and the rest says why it does not.
func TestOtherDriverOnSQLDB(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	db := openDB(t, "postgres", b.dsn, 3)
	s, err := postgres.NewSQL(db, b.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	box, err := outbox.New(s, outbox.Config{Source: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	in, err := inbox.New[*sql.Tx](s)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for _, fresh := range []bool{true, false} {
		_, err := box.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			got, err := in.Process(ctx, tx, "view", &postrider.Message{ID: "1", Type: "order.placed"})
			if err != nil || got != fresh {
				t.Errorf("fresh: %t, %v; want %t", got, err, fresh)
				return err
			}
			if _, err := box.Publish(ctx, tx, &postrider.Message{ID: fmt.Sprint(fresh), Type: "order.shipped"}); err != nil {
				return err
			}
			published, err := box.Published(ctx, tx)
			if len(published) != 1 || published[0].ID != fmt.Sprint(fresh) {
				t.Errorf("published %+v", published)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Status(ctx); !errors.Is(err, postgres.ErrDriver) || !strings.Contains(err.Error(), "*pq.conn") {
		t.Errorf("status: %v, want an error that is ErrDriver and names lib/pq", err)
	}
	if _, err := postgres.MigrateSQL(ctx, db, b.config, postgres.Latest); !errors.Is(err, postgres.ErrDriver) {
		t.Errorf("migrate: %v, want an error that is ErrDriver", err)
	}
	r, err := relay.New(s, relay.Config{Name: "r", Publisher: nil})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.HandleFunc("order.shipped", func(context.Context, *postrider.Message) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := r.Run(ctx); !errors.Is(err, postgres.ErrDriver) {
		t.Errorf("run a relay: %v, want an error that is ErrDriver", err)
	}
}

func TestNewSQLNeedsConnections(t *testing.T) {
	t.Parallel()
	if _, err := postgres.NewSQL(openDB(t, "pgx", dsn(t), 2), postgres.Config{}); err == nil || !strings.Contains(err.Error(), "SetMaxOpenConns") {
		t.Errorf("error %v, want one that names SetMaxOpenConns", err)
	}
	if _, err := postgres.NewSQL(nil, postgres.Config{}); err == nil {
		t.Error("a nil *sql.DB was accepted")
	}
}

// TestMigrateSQL brings a database to the newest version through a *sql.DB.
func TestMigrateSQL(t *testing.T) {
	t.Parallel()
	pool := newPool(t, dsn(t), 2)
	config := postgres.Config{Schema: newSchema(t, pool)}
	db := openDB(t, "pgx", dsn(t), 3)
	steps, err := postgres.MigrateSQL(t.Context(), db, config, postgres.Latest)
	if err != nil || len(steps) == 0 {
		t.Fatalf("%d steps, %v", len(steps), err)
	}
	s, err := postgres.NewSQL(db, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
}
