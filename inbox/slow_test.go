package inbox_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// slowWorld is a consumer whose handlers take as long as takes says, by their context, and write their effect before.
type slowWorld struct {
	t     *testing.T
	store *memory.Store
	box   *outbox.Outbox[*memory.Tx]
	b     *memorybroker.Broker
	takes func(ctx context.Context, m *postrider.Message) error
}

func newSlowWorld(t *testing.T, takes func(ctx context.Context, m *postrider.Message) error) *slowWorld {
	t.Helper()
	w := &slowWorld{t: t, store: memory.New(memory.Config{}), b: newBroker(t), takes: takes}
	var err error
	if w.box, err = outbox.New(w.store, outbox.Config{Source: "shop"}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *slowWorld) handle(ctx context.Context, tx *memory.Tx, m *postrider.Message) error {
	if m.Attempt != 1 {
		w.t.Errorf("attempt %d of %s; an interruption counts as none", m.Attempt, m.ID)
	}
	if _, err := w.box.Publish(ctx, tx, &postrider.Message{ID: m.ID, Type: "effect", Key: m.Key}); err != nil {
		return err
	}
	return w.takes(ctx, m)
}

// publish publishes a message of a key, with an ID if it has none, and returns its ID.
func (w *slowWorld) publish(key string, m *postrider.Message) (id string) {
	w.t.Helper()
	m.ID, m.Type = cmp.Or(m.ID, postrider.NewID()), cmp.Or(m.Type, "t")
	m.Topic, m.Source, m.Key, m.Time = "t", "s", key, time.Now()
	if m.Payload == nil {
		m.Payload = []byte("{}")
	}
	if err := errors.Join(w.b.Publish(w.t.Context(), []*postrider.Message{m})...); err != nil {
		w.t.Fatal(err)
	}
	return m.ID
}

// send publishes messages of a key, numbered from 0, and returns their IDs: "key number".
func (w *slowWorld) send(key string, n int) (ids []string) {
	w.t.Helper()
	for i := range n {
		ids = append(ids, w.publish(key, &postrider.Message{ID: fmt.Sprint(key, " ", i)}))
	}
	return ids
}

// effects returns the committed effects of a key, in the order in which they were written.
func (w *slowWorld) effects(key string) (ids []string) {
	w.t.Helper()
	n, err := w.store.Partitions(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	req := store.FetchRequest{Limit: 100_000, MaxBytes: 1 << 30}
	for p := range n {
		req.Partitions = append(req.Partitions, store.FetchPartition{LeaseRef: store.LeaseRef{Partition: p}})
	}
	batches, err := w.store.Fetch(w.t.Context(), "", req)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, b := range batches { // a key has one partition
		for _, e := range b.Entries {
			if e.Message.Key == key {
				ids = append(ids, e.Message.ID)
			}
		}
	}
	return ids
}

// want compares the effects of a key.
func (w *slowWorld) want(key string, ids []string) {
	w.t.Helper()
	if got := w.effects(key); !slices.Equal(got, ids) {
		w.t.Errorf("%s: %d effects, want %d:\n got %v\nwant %v", key, len(got), len(ids), got, ids)
	}
}

// wait waits, as a handler that obeys its context does.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// inEachWay runs a test with each kind of source and size of transactions.
func inEachWay(t *testing.T, test func(t *testing.T, source memorybroker.SubscriberConfig, batch int)) {
	for name, source := range map[string]memorybroker.SubscriberConfig{
		"log": {Topics: []string{"t"}, Partitions: 1}, "group": {Group: "view", Topics: []string{"t"}, Partitions: 1},
	} {
		for _, batch := range []int{1, 100} {
			t.Run(fmt.Sprint(name, " ", batch), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { test(t, source, batch) })
			})
		}
	}
}

// TestSlowKeyDoesNotFillTheMemory: a key has more messages than the memory takes, and each takes its time. Those of another key, which come
// after them, are handled long before; and those of the slow key all have their effect once, in order.
func TestSlowKeyDoesNotFillTheMemory(t *testing.T) {
	t.Parallel()
	for name, each := range map[string]time.Duration{"one takes long": 20 * time.Second, "all take long together": 500 * time.Millisecond} {
		for _, workers := range []int{1, 4} {
			t.Run(fmt.Sprint(name, ", workers ", workers), func(t *testing.T) {
				t.Parallel()
				inEachWay(t, func(t *testing.T, source memorybroker.SubscriberConfig, batch int) {
					w := newSlowWorld(t, func(ctx context.Context, m *postrider.Message) error {
						if m.Key == "slow" {
							return wait(ctx, each)
						}
						return nil
					})
					c, log := run(t, w.store, w.b, source, inbox.ConsumerConfig{MaxInFlight: 64, Concurrency: workers, Batch: batch}, w.handle)
					slow, others := w.send("slow", 100), w.send("other", 100)
					time.Sleep(30 * time.Second)
					w.want("other", others)
					time.Sleep(100 * each)
					w.want("slow", slow)
					if st := c.Stats(); st.Applied != 200 || st.Failed+st.Dead+st.Duplicates != 0 || st.Parked == 0 {
						t.Errorf("stats: %+v", st)
					}
					if n := strings.Count(log.String(), "a key is slow"); n == 0 || !strings.Contains(log.String(), "key=slow") || strings.Contains(log.String(), "key=other") {
						t.Errorf("logged %d times that the key is slow, or that another is", n)
					}
					fresh := w.send("fresh", 1)
					time.Sleep(time.Second)
					w.want("fresh", fresh)
				})
			})
		}
	}
}

// TestSharedTransactionDoesNotFillTheMemory: a handler hangs, in a transaction with messages of many keys. Each key has little in memory, and
// all together fill it. They go on without the one that hangs.
func TestSharedTransactionDoesNotFillTheMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		released := make(chan struct{})
		w := newSlowWorld(t, func(ctx context.Context, m *postrider.Message) error {
			if m.ID != "k0 0" {
				return nil
			}
			select {
			case <-released:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		var first, next []string
		for i := range 20 {
			first = append(first, w.send(fmt.Sprint("k", i), 1)...)
		}
		c, _ := run(t, w.store, w.b, memorybroker.SubscriberConfig{Topics: []string{"t"}, Partitions: 1}, inbox.ConsumerConfig{MaxInFlight: 64, Concurrency: 4}, w.handle)
		time.Sleep(time.Second)
		for i := range 20 {
			for n := range 3 {
				next = append(next, w.publish(fmt.Sprint("k", i), &postrider.Message{ID: fmt.Sprint("k", i, " ", n+1)}))
			}
		}
		others := w.send("other", 100)
		time.Sleep(30 * time.Second)
		w.want("other", others)
		if st := c.Stats(); st.Applied != int64(len(first)+len(next)+len(others)-4) || st.Failed+st.Dead != 0 {
			t.Errorf("stats: %+v", st)
		}
		close(released)
		time.Sleep(10 * time.Second)
		w.want("k0", []string{"k0 0", "k0 1", "k0 2", "k0 3"})
	})
}
