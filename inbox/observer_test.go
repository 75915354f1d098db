package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// TestObserver: an observer is told of each outcome. One that panics does not hinder the consumer.
func TestObserver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		var mu sync.Mutex
		got := make(map[string]observe.Outcome)
		c, log := startedFrom(t, b, inbox.ConsumerConfig{Observer: &observe.Consumer{Processed: func(_ context.Context, p observe.Processed) {
			mu.Lock()
			defer mu.Unlock()
			for _, r := range p.Results {
				got[r.Message.ID] = r.Outcome
				if r.Message.ID == "last" {
					panic("observer")
				}
			}
		}}}, func(_ context.Context, _ *memory.Tx, m *postrider.Message) error {
			switch m.ID {
			case "discarded":
				return postrider.Discard("of no use", nil)
			case "dead":
				return postrider.Dead("broken", errors.New("broken"))
			}
			return nil
		})
		for _, id := range []string{"applied", "discarded", "dead", "last", "after"} {
			m := &postrider.Message{ID: id, Type: "t", Topic: "t", Source: "s", Key: id, Time: time.Now()}
			if err := errors.Join(b.Publish(t.Context(), []*postrider.Message{m})...); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		want := map[string]observe.Outcome{"applied": observe.Applied, "discarded": observe.Discarded, "dead": observe.DeadLettered, "last": observe.Applied}
		mu.Lock()
		defer mu.Unlock()
		if fmt.Sprint(got) != fmt.Sprint(want) || c.Stats().Applied != 3 || !strings.Contains(log.String(), "observer panicked and will not be called again") {
			t.Errorf("observed %v, %+v; log:\n%s", got, c.Stats(), log)
		}
	})
}

// TestHangingHandlerBoundsWhatIsReadAhead: while a handler hangs, other keys go on, but not further than what the consumer can
// remember.
func TestHangingHandlerBoundsWhatIsReadAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const inFlight, n = 16, 3_000
		b := newBroker(t)
		hang := make(chan struct{})
		c, log := startedFrom(t, b, inbox.ConsumerConfig{MaxInFlight: inFlight, Batch: 1, AttemptTimeout: time.Hour, Concurrency: 4},
			func(_ context.Context, _ *memory.Tx, m *postrider.Message) error {
				if m.Key == "0" {
					<-hang
				}
				return nil
			})
		var msgs []*postrider.Message
		for i := range n {
			msgs = append(msgs, &postrider.Message{ID: fmt.Sprint(i), Type: "t", Topic: "t", Source: "s", Key: fmt.Sprint(i), Time: time.Now()})
		}
		if err := errors.Join(b.Publish(t.Context(), msgs)...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := c.Stats().Applied; got < 60*inFlight || got > 66*inFlight {
			t.Errorf("%d messages were processed after one that hangs; %d may be read", got, 64*inFlight)
		}
		close(hang)
		time.Sleep(time.Minute)
		if got := c.Stats(); got.Applied != n || got.Duplicates != 0 {
			t.Errorf("%+v\n%s", got, log)
		}
	})
}

// replacedStore is a store whose database is replaced.
type replacedStore struct {
	*memory.Store
	replaced chan struct{}
}

func (s replacedStore) Heartbeat(ctx context.Context, name string, owner store.Owner, ttl time.Duration) (store.View, error) {
	select {
	case <-s.replaced:
		return store.View{}, fmt.Errorf("heartbeat: %w", store.ErrReplaced)
	default:
		return s.Store.Heartbeat(ctx, name, owner, ttl)
	}
}

// TestReplacedDatabaseEndsTheConsumer: whether it reads a log or a queue, Run ends with the error.
func TestReplacedDatabaseEndsTheConsumer(t *testing.T) {
	t.Parallel()
	for _, group := range []string{"", "view"} {
		synctest.Test(t, func(t *testing.T) {
			b, s := newBroker(t), replacedStore{memory.New(memory.Config{}), make(chan struct{})}
			subscriber, err := b.Subscriber(memorybroker.SubscriberConfig{Group: group, Topics: []string{"t"}, Partitions: 1})
			if err != nil {
				t.Fatal(err)
			}
			in, err := inbox.New(s)
			if err != nil {
				t.Fatal(err)
			}
			log := &text{}
			c, err := inbox.NewConsumer(in, subscriber, inbox.ConsumerConfig{Name: "view", Logger: slog.New(slog.NewTextHandler(log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.HandleFunc("t", func(context.Context, *memory.Tx, *postrider.Message) error { return nil }); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- c.Run(t.Context()) }()
			time.Sleep(time.Minute)
			close(s.replaced)
			select {
			case err := <-ended:
				if !errors.Is(err, store.ErrReplaced) {
					t.Errorf("group %q: Run ended with %v\n%s", group, err, log)
				}
			case <-time.After(10 * time.Minute):
				t.Fatalf("group %q: Run goes on\n%s", group, log)
			}
		})
	}
}
