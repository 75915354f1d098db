package inbox_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// awayStore does not answer the first access of a consumer.
type awayStore struct{ *memory.Store }

func (awayStore) Enroll(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestStopWhileTheConsumerBegins: Stop does not wait for a database that does not answer, nor for a function of Prepare.
func TestStopWhileTheConsumerBegins(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]store.Inbox[*memory.Tx]{"the database is away": awayStore{memory.New(memory.Config{})}, "Prepare": memory.New(memory.Config{})} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				subscriber, err := newBroker(t).Subscriber(memorybroker.SubscriberConfig{Group: "view", Topics: []string{"t"}, Partitions: 1})
				if err != nil {
					t.Fatal(err)
				}
				in, err := inbox.New(s)
				if err != nil {
					t.Fatal(err)
				}
				c, err := inbox.NewConsumer(in, subscriber, inbox.ConsumerConfig{Name: "view", Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(
					c.HandleFunc("t", func(context.Context, *memory.Tx, *postrider.Message) error { return nil }),
					c.Prepare(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }),
				); err != nil {
					t.Fatal(err)
				}
				ctx, end := context.WithCancel(context.Background())
				defer end()
				done, stopped := make(chan error, 1), make(chan error, 1)
				go func() { done <- c.Run(ctx) }()
				synctest.Wait()
				go func() { stopped <- c.Stop(context.Background()) }()
				time.Sleep(time.Minute)
				select {
				case err := <-done:
					if stop := <-stopped; err != nil || stop != nil {
						t.Errorf("Run: %v, Stop: %v", err, stop)
					}
				default:
					t.Error("a minute after Stop the consumer still begins")
					end()
				}
			})
		})
	}
}
