//go:build !race

package postgres_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// TestConsumerWhoseConnectionIsEnded: the server ends the connection of a handler, in its statement, or before the commit. Twice, it is the
// server, and the only attempt does not count; each time, it is the message, which is dead in the end.
func TestConsumerWhoseConnectionIsEnded(t *testing.T) {
	t.Parallel()
	for _, group := range []string{"view", ""} {
		t.Run("group "+group, func(t *testing.T) {
			t.Parallel()
			b := setup(t, postgres.Config{})
			b.exec(t, "create table "+b.table("done")+" (id text primary key)")
			broker, err := memorybroker.New(memorybroker.Config{})
			if err != nil {
				t.Fatal(err)
			}
			calls := make(map[string]int) // one worker
			c := b.consumer(t, broker, group, func(ctx context.Context, tx pgx.Tx, m *postrider.Message) error {
				calls[m.ID]++
				if _, err := tx.Exec(ctx, "insert into "+b.table("done")+" values ($1)", m.ID); err != nil {
					return err
				}
				switch {
				case m.ID == "always", m.ID == "statement" && calls[m.ID] <= 2:
					_, err := tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
					return err
				case m.ID == "commit" && calls[m.ID] <= 2: // the handler does not notice
					_, err := b.pool.Exec(ctx, "select pg_terminate_backend($1)", tx.Conn().PgConn().PID())
					return err
				}
				return nil
			})
			ids := []string{"statement", "commit", "always", "well"}
			for _, id := range ids {
				m := &postrider.Message{ID: id, Type: "t", Topic: "t", Source: "s", Key: id, Time: time.Now()}
				if errs := broker.Publish(t.Context(), []*postrider.Message{m}); errs != nil {
					t.Fatal(errs)
				}
			}
			eventually(t, func() bool { s := c.Stats(); return s.Applied+s.Dead == int64(len(ids)) }, "not all were settled")
			if s := c.Stats(); s.Applied != 3 || s.Dead != 1 || s.Failed != 1 {
				t.Errorf("%+v, want 3 applied, and 1 dead after 1 failed attempt", s)
			}
			if got := one[string](t, b.pool, "select string_agg(id, ' ' order by id) from "+b.table("done")); got != "commit statement well" {
				t.Errorf("effects of %s", got)
			}
			for l, err := range deadletter.New(b.Store).ListDead(t.Context(), store.DeadFilter{}, 0, 0) {
				if err != nil || l.Message.ID != "always" || l.Reason != inbox.AttemptsExhausted {
					t.Errorf("%+v is dead, %v", l, err)
				}
			}
		})
	}
}

// consumer runs a consumer with one worker, and one attempt for each message, until the test ends.
func (b *bundle) consumer(t *testing.T, broker *memorybroker.Broker, group string, h inbox.Handler[pgx.Tx]) *inbox.Consumer[pgx.Tx] {
	t.Helper()
	source, err := broker.Subscriber(memorybroker.SubscriberConfig{Group: group, Topics: []string{"t"}, Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	in, err := inbox.New(store.Inbox[pgx.Tx](b.Store))
	if err != nil {
		t.Fatal(err)
	}
	c, err := inbox.NewConsumer(in, source, inbox.ConsumerConfig{
		Name: "view", Concurrency: 1, MaxAttempts: 1, LeaseTTL: 5 * time.Minute, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.HandleFunc("t", h); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return c
}
