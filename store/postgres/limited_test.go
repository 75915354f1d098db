package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"database/sql"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// logged collects log records.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), text)
}

// insertMessages commits messages of n keys in one transaction.
func (b *bundle) insertMessages(t *testing.T, n int) {
	t.Helper()
	var msgs []*postrider.Message
	for i := range n {
		msgs = append(msgs, &postrider.Message{ID: fmt.Sprintf("m%04d", i), Type: "t", Topic: "t", Key: fmt.Sprintf("k%d", i), Time: time.Now(), Payload: []byte("{}")})
	}
	ctx := t.Context()
	tx, err := b.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Insert(ctx, tx, msgs), b.Commit(ctx, tx)); err != nil {
		t.Fatal(err)
	}
	b.Wake()
}

// busy simulates a handler's work.
func busy(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// relayAndConsumer returns a relay and a consumer on one store that both call handle, with their kind as the last argument.
func relayAndConsumer(t *testing.T, store *postgres.Store, logger *slog.Logger,
	handle func(ctx context.Context, tx pgx.Tx, m *postrider.Message, who string) error) (*relay.Relay, *inbox.Consumer[pgx.Tx]) {
	t.Helper()
	r, err := relay.New(store, relay.Config{Name: "r", LeaseTTL: 15 * time.Second, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	if err := relay.HandleTxFunc(r, "t", func(ctx context.Context, tx pgx.Tx, m *postrider.Message) error {
		return handle(ctx, tx, m, "relay")
	}); err != nil {
		t.Fatal(err)
	}
	source, err := inbox.FromRelay(store, relay.Config{Name: "source", LeaseTTL: 15 * time.Second, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	in, err := inbox.New[pgx.Tx](store)
	if err != nil {
		t.Fatal(err)
	}
	c, err := inbox.NewConsumer(in, source, inbox.ConsumerConfig{Name: "c", LeaseTTL: 15 * time.Second, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.HandleFunc("t", func(ctx context.Context, tx pgx.Tx, m *postrider.Message) error {
		return handle(ctx, tx, m, "consumer")
	}); err != nil {
		t.Fatal(err)
	}
	return r, c
}

// TestSmallPool: a relay and a consumer whose handlers take 150 ms share a pool of 4 connections, with Concurrency at its
// default: three transactions run at once, and the heartbeats do not wait for them.
func TestSmallPool(t *testing.T) {
	t.Parallel()
	notInShort(t)
	const messages, took = 120, 150 * time.Millisecond
	b := setupWith(t, dsn(t), postgres.Config{Partitions: 4}, 4)
	b.insertMessages(t, messages)
	var out logged
	logger := slog.New(slog.NewTextHandler(&out, nil))
	var effects atomic.Int64 // of transactions that may be rolled back: only the lower bound of the rate is checked
	b.exec(t, "create table "+b.table("effects_of")+" (id text, who text, primary key (id, who))")
	insert := func(ctx context.Context, tx pgx.Tx, m *postrider.Message, who string) error {
		effects.Add(1)
		if err := busy(ctx, took); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "insert into "+b.table("effects_of")+" values ($1, $2)", m.ID, who)
		return err
	}
	r, c := relayAndConsumer(t, b.Store, logger, insert)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	began := time.Now()
	running.Go(func() { _ = r.Run(ctx) })
	running.Go(func() { _ = c.Run(ctx) })
	conn := connect(t, dsn(t))
	possible := 2 * messages * took / 3
	for n := 0; n < 2*messages; n = one[int](t, conn, "select count(*) from "+b.table("effects_of")) {
		if time.Since(began) > 30*possible {
			t.Fatalf("%d of %d effects were committed after %s, %d handlers were called; it is possible in %s", n, 2*messages, time.Since(began),
				effects.Load(), possible)
		}
		_ = busy(ctx, 50*time.Millisecond)
	}
	t.Logf("%d effects after %s, possible in %s; %d calls", 2*messages, time.Since(began).Round(time.Millisecond), possible, effects.Load())
	for _, text := range []string{"relay runs fewer transactions at once than Concurrency", "consumer runs fewer transactions at once"} {
		if !out.has(text) {
			t.Errorf("the log does not say: %s", text)
		}
	}
	if out.has("without being renewed") {
		t.Error("leases ended while the process worked")
	}
}

// connect opens a connection outside all pools.
func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// TestHeartbeatWaitsForNoWork: every connection of the pool is in use, and the heartbeat connection is cut in between.
func TestHeartbeatWaitsForNoWork(t *testing.T) {
	t.Parallel()
	b := setupWith(t, dsn(t), postgres.Config{}, 2)
	owner := store.Owner{ID: "a"}
	heartbeat := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if _, err := b.Heartbeat(ctx, "r", owner, longTTL); err != nil {
			t.Fatal(err)
		}
	}
	conns := []*pgxpool.Conn{take(t, b.pool), take(t, b.pool)}
	heartbeat()
	if _, err := conns[0].Exec(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity where query like '%' || $1 || '%relays%'
		and pid <> pg_backend_pid() and state = 'idle'`, b.config.Schema); err != nil {
		t.Fatal(err)
	}
	heartbeat()
}

func take(t *testing.T, pool *pgxpool.Pool) *pgxpool.Conn {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	return conn
}

// TestIdleLimit: the server ends handlers' transactions that wait too long for a statement, but not those of users.
func TestIdleLimit(t *testing.T) {
	t.Parallel()
	notInShort(t)
	const limit = "show idle_in_transaction_session_timeout"
	b, ctx := setup(t, postgres.Config{IdleTimeout: 2 * time.Minute}), t.Context()
	unlimited := one[string](t, b.pool, limit)
	begun := func(tx pgx.Tx, err error) pgx.Tx {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Rollback(context.Background(), tx) })
		return tx
	}
	claim := func(tx pgx.Tx, _ []store.ClaimResult, err error) (pgx.Tx, error) { return tx, err }
	for name, c := range map[string]struct {
		tx   pgx.Tx
		want string
	}{
		"Begin":             {begun(b.Begin(ctx)), unlimited},
		"BeginLimited":      {begun(b.BeginLimited(ctx, 0)), "2min"},
		"BeginLimited, TTL": {begun(b.BeginLimited(ctx, time.Minute)), "1min"},
		"BeginClaim":        {begun(claim(b.BeginClaim(ctx, "c", []store.ClaimRequest{{ID: "1"}}))), "2min"},
		"BeginClaim, none":  {begun(claim(b.BeginClaim(ctx, "c", nil))), "2min"},
	} {
		if got := one[string](t, c.tx, limit); got != c.want {
			t.Errorf("%s: the limit is %s, want %s", name, got, c.want)
		}
	}
	db, err := sql.Open("pgx", dsn(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(7)
	s := b.SQL(db)
	if n := s.Connections(); n != 7 {
		t.Errorf("%d connections of database/sql, want 7", n)
	}
	tx, err := s.BeginLimited(ctx, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var got string
	if err := tx.QueryRow(limit).Scan(&got); err != nil || got != "5s" {
		t.Errorf("database/sql: the limit is %s, %v, want 5s", got, err)
	}
	if _, err := tx.Exec("select pg_advisory_xact_lock(hashtext($1))", b.config.Schema); err != nil {
		t.Fatal(err)
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := b.pool.Exec(waiting, "select pg_advisory_lock(hashtext($1)), pg_advisory_unlock(hashtext($1))", b.config.Schema); err != nil {
		t.Errorf("a lock of a transaction that waits for its next statement was not given up: %v", err)
	}
}

// TestAttemptTimeoutBelowIdleLimit: a handler that may take longer than the idle limit is refused.
func TestAttemptTimeoutBelowIdleLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{IdleTimeout: 2 * time.Second})
	run := func(c relay.Config) error {
		c.Name = "r"
		r, err := relay.New(b.Store, c)
		if err != nil {
			t.Fatal(err)
		}
		err = relay.HandleTxFunc(r, "t", func(context.Context, pgx.Tx, *postrider.Message) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return r.Run(ctx)
	}
	for _, c := range []relay.Config{{AttemptTimeout: 2 * time.Second}, {AttemptTimeout: time.Second, LeaseTTL: time.Second}, {AttemptTimeout: -1}} {
		if err := run(c); err == nil || !strings.Contains(err.Error(), "AttemptTimeout is ") || !strings.Contains(err.Error(), "s for a statement") {
			t.Errorf("%+v: %v", c.AttemptTimeout, err)
		}
	}
	for _, c := range []relay.Config{{}, {AttemptTimeout: time.Second}} {
		if err := run(c); err != nil {
			t.Errorf("%s: %v", c.AttemptTimeout, err)
		}
	}
	in, err := inbox.New[pgx.Tx](b.Store)
	if err != nil {
		t.Fatal(err)
	}
	source, err := inbox.FromRelay(b.Store, relay.Config{Name: "source"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = inbox.NewConsumer(in, source, inbox.ConsumerConfig{Name: "c", AttemptTimeout: 2 * time.Second}); err == nil ||
		!strings.Contains(err.Error(), "AttemptTimeout is 2s, and the database ends a transaction that waits 2s") {
		t.Errorf("consumer: %v", err)
	}
}

// TestConnectionCutBeforeSync: a process dies, and the server has all of its last settlement except the end. Another process
// still takes over the partition.
func TestConnectionCutBeforeSync(t *testing.T) {
	t.Parallel()
	notInShort(t)
	for name, lock := range map[string]string{
		"settlement": "select from %s where relay = 'r' for key share",
		"grant":      "select pg_advisory_xact_lock(hashtextextended(%s::text || 'r', 2))",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 3 * time.Second
			var out logged
			b, ctx := setup(t, postgres.Config{Partitions: 1, Logger: slog.New(slog.NewTextHandler(&out, nil))}), t.Context()
			acquire := func(owner string) []store.Lease {
				t.Helper()
				leases, err := b.Acquire(ctx, "r", store.Owner{ID: owner}, store.AcquireRequest{TTL: ttl, Claims: []store.LeaseClaim{{Token: store.NewToken()}}})
				if err != nil {
					t.Fatal(err)
				}
				return leases
			}
			if len(acquire("dead")) != 1 {
				t.Fatal("the first process got no lease")
			}
			table := b.table("leases")
			if name == "grant" {
				table = "'" + b.table("relays") + "'"
			}
			pipeline := connect(t, dsn(t)).PgConn().StartPipeline(ctx)
			pipeline.SendQueryParams(fmt.Sprintf(lock, table), nil, nil, nil, nil)
			pipeline.SendFlushRequest()
			if err := pipeline.Flush(); err != nil {
				t.Fatal(err)
			}
			if _, err := pipeline.GetResults(); err != nil {
				t.Fatal(err)
			}
			for began := time.Now(); len(acquire("next")) == 0; {
				if time.Since(began) > ttl+patience {
					t.Fatalf("the partition was not taken over after %s", time.Since(began))
				}
				_ = busy(ctx, 100*time.Millisecond)
			}
			if !out.has("its backend is ended") {
				t.Error("the log does not say that a backend was ended")
			}
		})
	}
}
