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
	b := setup(t, postgres.Config{Notify: true, NotifyEvery: time.Millisecond})
	config := b.config
	config.Notify, config.ListenDSN = false, withParam(t, dsn(t), "application_name", config.Schema)
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

func TestListenReturnsWhenNotConfigured(t *testing.T) {
	t.Parallel()
	if err := setup(t, postgres.Config{}).Listen(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNotificationsCoalesce(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Notify: true, NotifyEvery: time.Hour})
	conn, err := pgx.Connect(t.Context(), dsn(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	channel := one[string](t, b.pool, "select 'postrider_' || substr(md5($1::text), 1, 16)", b.config.Schema+".postrider_")
	if _, err := conn.Exec(t.Context(), "listen "+channel); err != nil {
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
