package postgres_test

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store/postgres"
)

// heard waits for a signal.
func heard(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(5 * time.Minute):
		t.Fatalf("%s: nothing heard", what)
	}
}

// listening runs Listen until the test ends, or ended is called.
func listening(t *testing.T, s interface{ Listen(context.Context) error }) (ended func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Listen(ctx) }()
	ended = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(ended)
	return ended
}

// until waits for a condition that a query reports.
func (b *bundle) until(t *testing.T, sql string, args ...any) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !one[bool](t, b.pool, sql, args...); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never true: %s", sql)
		}
	}
}

// locksHere are the locks of this database, as a condition of a query of pg_locks, which lists those of the whole server. Databases that are
// cloned from one template have the same numbers for their tables.
const locksHere = "database = (select oid from pg_database where datname = current_database())"

// lockedSQL reports whether a session of the application $2 has the lock of a listener to the outbox $1.
const lockedSQL = `select exists (select from pg_locks l join pg_stat_activity a using (pid)
	where l.locktype = 'advisory' and l.objsubid = 2 and a.application_name = $2
	and l.classid::int8 = ('x' || substr(md5($1), 17, 8))::bit(32)::int8 and l.objid::int8 = ('x' || substr(md5($1), 25, 8))::bit(32)::int8)`

// listener is a process whose connections are named after it. It listens when listener returns.
func (b *bundle) listener(t *testing.T, name string) (s *postgres.Store, woken <-chan struct{}) {
	t.Helper()
	return b.listenerOn(t, b.config.Schema+name, tracer{t})
}

func (b *bundle) listenerOn(t *testing.T, name string, by pgx.QueryTracer) (s *postgres.Store, woken <-chan struct{}) {
	t.Helper()
	s = open(t, tracedPool(t, withParam(t, b.dsn, "application_name", name), 2, by), b.config)
	woken, unsubscribe := s.Subscribe(nil)
	t.Cleanup(unsubscribe)
	listening(t, s)
	b.until(t, lockedSQL, b.config.Schema+".postrider_", name)
	b.looked(t, name)
	return s, woken
}

// looked waits until what a process wakes at the beginning is awake: it looks for messages a second time.
func (b *bundle) looked(t *testing.T, name string) {
	t.Helper()
	const look = "select exists (select from pg_stat_activity where application_name = $1 and query like '%log_seq_seq%' and query_start > $2)"
	b.until(t, look, name, time.Time{})
	b.until(t, look, name, one[time.Time](t, b.pool, "select clock_timestamp()"))
}

// notified wakes until another process is woken: a publisher asks once a second who listens.
func notified(t *testing.T, publisher interface{ Wake(topics ...string) }, woken <-chan struct{}) {
	t.Helper()
	for deadline := time.After(5 * time.Minute); ; {
		publisher.Wake()
		select {
		case <-woken:
			return
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			t.Fatal("no notification")
		}
	}
}

// asking tells when a process has asked the server who listens.
type asking struct {
	tracer
	asked chan struct{}
}

func newAsking(t *testing.T) asking { return asking{tracer{t}, make(chan struct{}, 1)} }

type asksKey struct{}

// TraceQueryStart implements pgx.QueryTracer.
func (a asking) TraceQueryStart(ctx context.Context, conn *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	return context.WithValue(a.tracer.TraceQueryStart(ctx, conn, d), asksKey{}, strings.Contains(d.SQL, "pg_locks"))
}

// TraceQueryEnd implements pgx.QueryTracer.
func (a asking) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if ctx.Value(asksKey{}) == true {
		select {
		case a.asked <- struct{}{}:
		default:
		}
	}
}

// TestNotifications: with defaults, a commit wakes other processes, and again after the listener's connection broke.
func TestNotifications(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	_, woken := b.listener(t, "a")
	heard(t, woken, "the beginning of listening")
	notified(t, b, woken)
	b.exec(t, "select pg_terminate_backend(l.pid) from pg_locks l join pg_stat_activity a using (pid) where l.locktype = 'advisory' and "+
		"a.application_name = $1", b.config.Schema+"a")
	heard(t, woken, "what was committed while nobody listened")
	b.until(t, lockedSQL, b.config.Schema+".postrider_", b.config.Schema+"a")
	notified(t, b, woken)
}

// TestOwnNotifications: a process is not woken by its own notifications, and sends none while it alone listens.
func TestOwnNotifications(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{NotifyEvery: time.Millisecond})
	asks := newAsking(t)
	own, wokenOwn := b.listenerOn(t, b.config.Schema+"own", asks)
	heard(t, wokenOwn, "the beginning of listening")
	own.Wake()
	heard(t, wokenOwn, "the wake-up within the process")
	heard(t, asks.asked, "the question who listens")
	quiet := func(what string) {
		t.Helper()
		select {
		case <-wokenOwn:
			t.Error(what)
		case <-time.After(50 * time.Millisecond):
		}
	}
	quiet("a process notifies itself")
	_, woken := b.listener(t, "other")
	heard(t, woken, "the beginning of listening")
	notified(t, own, woken)
	heard(t, wokenOwn, "the wake-up within the process")
	quiet("a process is woken by its own notification")
}

// TestNobodyListens: what does not have a listener's lock is no listener, and gets no notification.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	conn, asks := b.rawListener(t), newAsking(t)
	publisher := open(t, tracedPool(t, dsn(t), 1, asks), b.config)
	publisher.Wake()
	heard(t, asks.asked, "the question who listens")
	publisher.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if n, err := conn.WaitForNotification(ctx); err == nil {
		t.Errorf("nobody listens, and there is a notification: %+v", n)
	}
}

// rawListener receives notifications without a listener's lock.
func (b *bundle) rawListener(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), b.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	channel := one[string](t, b.pool, "select 'postrider_' || substr(md5($1::text), 1, 16)", b.config.Schema+".postrider_")
	if _, err := conn.Exec(t.Context(), "listen "+channel); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestNotificationsCoalesce(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{NotifyEvery: time.Hour})
	_, woken := b.listener(t, "a")
	heard(t, woken, "the beginning of listening")
	conn := b.rawListener(t)
	for range 1000 {
		b.Wake()
	}
	if _, err := conn.WaitForNotification(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Close() // waits for a notification that may still be in progress
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if n, err := conn.WaitForNotification(ctx); err == nil {
		t.Errorf("a second notification within the interval: %+v", n)
	}
}

// TestNotificationsOff: neither notifications nor a connection to listen on.
func TestNotificationsOff(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{NotifyEvery: -1})
	b.findsWithoutNotifications(t, b.Store)
}

// TestListenOnDB: a *sql.DB gives no connection away to listen on.
func TestListenOnDB(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	db, err := sql.Open("pgx", b.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s, err := postgres.NewSQL(db, b.config)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b.findsWithoutNotifications(t, s.Store)
}

// TestListenOverPgBouncer: a pooler in transaction mode would take LISTEN and pass nothing on, so the listener says so once, leaves
// nothing behind in the pooler's connections, and looks for new sequences.
func TestListenOverPgBouncer(t *testing.T) {
	t.Parallel()
	notInShort(t)
	b := setup(t, postgres.Config{})
	var log bytes.Buffer
	config := b.config
	config.Logger = slog.New(slog.NewTextHandler(&log, nil))
	pooled := withParam(t, startPgBouncer(t), "default_query_exec_mode", "exec")
	for _, listenTo := range []string{"", pooled} {
		config.ListenDSN = listenTo
		log.Reset()
		b.findsWithoutNotifications(t, open(t, newPool(t, pooled, 4), config))
		if n := strings.Count(log.String(), "pooler"); n != 1 || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("with ListenDSN %q, the log has\n%s", listenTo, &log)
		}
	}
}

// findsWithoutNotifications publishes in SQL to a store that no notification reaches.
func (b *bundle) findsWithoutNotifications(t *testing.T, s *postgres.Store) {
	t.Helper()
	woken, unsubscribe := s.Subscribe(nil)
	defer unsubscribe()
	ended := listening(t, s)
	heard(t, woken, "the first look")
	for range 3 {
		b.exec(t, "select "+b.config.Schema+".postrider_publish('orders', 'k', 'x', '{}')")
		heard(t, woken, "a message published in SQL")
	}
	ended()
	if one[bool](t, b.pool, `select exists (select from pg_locks l where l.locktype = 'advisory' and l.objsubid = 2 and `+locksHere+`
		and l.classid::int8 = ('x' || substr(md5($1), 17, 8))::bit(32)::int8)`, b.config.Schema+".postrider_") {
		t.Error("a session has the lock of a listener")
	}
}

// TestWakeAfterClose has nothing to send.
func TestWakeAfterClose(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	b.Close()
	b.Wake()
	b.Close()
}
