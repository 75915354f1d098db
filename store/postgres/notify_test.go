package postgres_test

import (
	"context"
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

func TestNotificationReachesAnotherProcess(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{NotifyEvery: time.Millisecond})
	config := b.config
	config.ListenDSN = withParam(t, dsn(t), "application_name", config.Schema)
	other := open(t, newPool(t, dsn(t), 2), config)
	woken, unsubscribe := other.Subscribe()
	defer unsubscribe()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := other.Listen(ctx); err != nil {
			t.Error(err)
		}
	})
	heard(t, woken, "the beginning of listening")
	b.Wake()
	heard(t, woken, "a notification")
	// The connection breaks; after the reconnection, relays are woken for what they may have missed.
	b.exec(t, "select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1", config.Schema)
	heard(t, woken, "the reconnection")
	b.Wake()
	heard(t, woken, "a notification after the reconnection")
	cancel()
	wg.Wait()
}

// TestOwnNotificationsWakeNobody: what a process publishes has woken its relays already.
func TestOwnNotificationsWakeNobody(t *testing.T) {
	t.Parallel()
	config := setup(t, postgres.Config{NotifyEvery: time.Millisecond}).config
	config.ListenDSN = dsn(t)
	own, other := open(t, newPool(t, dsn(t), 2), config), open(t, newPool(t, dsn(t), 2), config)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var woken []<-chan struct{}
	for _, s := range []*postgres.Store{own, other} {
		c, unsubscribe := s.Subscribe()
		defer unsubscribe()
		woken = append(woken, c)
		wg.Go(func() {
			if err := s.Listen(ctx); err != nil {
				t.Error(err)
			}
		})
		heard(t, c, "the beginning of listening")
	}
	own.Wake()
	heard(t, woken[0], "the wake-up within the process")
	heard(t, woken[1], "a notification")
	select {
	case <-woken[0]:
		t.Error("a process is woken by its own notification")
	case <-time.After(100 * time.Millisecond):
	}
}

// TestNobodyListens: what does not have a listener's lock is no listener, and gets no notification.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	name := b.config.Schema
	conn, err := pgx.Connect(t.Context(), dsn(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	channel := one[string](t, b.pool, "select 'postrider_' || substr(md5($1::text), 1, 16)", name+".postrider_")
	if _, err := conn.Exec(t.Context(), "listen "+channel); err != nil {
		t.Fatal(err)
	}
	publisher := open(t, newPool(t, withParam(t, dsn(t), "application_name", name), 1), b.config)
	publisher.Wake()
	for one[int](t, b.pool, "select count(*) from pg_stat_activity where application_name = $1 and query like '%pg_notify%'", name) == 0 {
		<-time.After(time.Millisecond)
	}
	publisher.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if n, err := conn.WaitForNotification(ctx); err == nil {
		t.Errorf("nobody listens, and there is a notification: %+v", n)
	}
}

func TestListenReturnsWhenNotConfigured(t *testing.T) {
	t.Parallel()
	if err := setup(t, postgres.Config{}).Listen(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNotificationsCoalesce(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{NotifyEvery: time.Hour})
	conn, err := pgx.Connect(t.Context(), dsn(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	channel := one[string](t, b.pool, "select 'postrider_' || substr(md5($1::text), 1, 16)", b.config.Schema+".postrider_")
	lock := "select pg_advisory_lock_shared(('x' || substr(md5($1), 17, 16))::bit(64)::bigint)"
	if _, err := conn.Exec(t.Context(), "listen "+channel); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), lock, b.config.Schema+".postrider_"); err != nil {
		t.Fatal(err)
	}
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
