package crash

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/postrider/postrider"
	kafkabroker "github.com/postrider/postrider/broker/kafka"
	natsbroker "github.com/postrider/postrider/broker/nats"
	redisbroker "github.com/postrider/postrider/broker/redis"
	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/itest/process"
)

// logBroker is a broker with a log.
type logBroker struct {
	// start starts a server; nil for that of every world.
	start func(ctx context.Context, t testing.TB, dir string, port int) (*process.Server, error)
	// options are those of the publisher's URL.
	options string
	// read opens a subscriber of the log.
	read func(ctx context.Context, url string) (postrider.Subscriber, error)
}

// logBrokers are the brokers with a log, by the way to consume.
var logBrokers = map[string]logBroker{
	byLog: {read: func(ctx context.Context, url string) (postrider.Subscriber, error) {
		return natsbroker.OpenSubscriber(ctx, url, natsbroker.SubscriberConfig{Config: natsbroker.Config{Stream: "ACCOUNTS"}})
	}},
	byPartitions: {
		options: "?stream=PARTITIONED&dedupe_window=100ms&partitioned=true",
		read: func(ctx context.Context, url string) (postrider.Subscriber, error) {
			cfg := natsbroker.Config{Stream: "PARTITIONED", Partitioned: true, DedupeWindow: shortestDedupe}
			return natsbroker.OpenSubscriber(ctx, url, natsbroker.SubscriberConfig{Config: cfg})
		},
	},
	byKafkaLog: {
		start: func(ctx context.Context, t testing.TB, dir string, port int) (*process.Server, error) {
			return process.StartKafka(ctx, servertest.Get(t, servertest.KafkaHome), dir, port)
		},
		options: "?create=true&partitions=3",
		read: func(ctx context.Context, url string) (postrider.Subscriber, error) {
			return kafkabroker.OpenSubscriber(ctx, url, kafkabroker.SubscriberConfig{Topics: []string{"transfer"}, Create: true, Partitions: 3})
		},
	},
	byRedisLog: {
		start: func(ctx context.Context, t testing.TB, dir string, port int) (*process.Server, error) {
			return process.StartRedis(ctx, servertest.Get(t, servertest.RedisBin), dir, port)
		},
		options: "?partitions=3",
		read: func(ctx context.Context, url string) (postrider.Subscriber, error) {
			return redisbroker.OpenSubscriber(ctx, url, redisbroker.SubscriberConfig{
				Config: redisbroker.Config{Partitions: 3}, Topics: []string{"transfer"},
			})
		},
	},
}

// useLog makes the relay publish to the broker of a way to consume.
func (w *world) useLog(way, relaySettings string) {
	w.t.Helper()
	b := logBrokers[way]
	if b.start != nil {
		if err := w.broker.Stop(); err != nil {
			w.t.Fatal(err)
		}
		w.start = func(port int) (*process.Server, error) { return b.start(w.t.Context(), w.t, w.dir, port) }
		w.startBroker(0)
	}
	if b.options != "" {
		w.configure(w.broker.URL+b.options, relaySettings)
	}
}

// storedOrder reads the IDs of all messages in the broker, in order and by key, first copies only.
func (w *world) storedOrder(way string) map[string][]string {
	w.t.Helper()
	sub, err := logBrokers[way].read(w.t.Context(), w.broker.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	log := sub.(postrider.Log)
	parts, err := log.Partitions(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	stored, seen := make(map[string][]string), make(map[string]bool)
	var mu sync.Mutex
	var reading sync.WaitGroup
	for _, p := range parts {
		reading.Go(func() { // one may wait for a heartbeat that says that there is no more for it
			err := readStored(w.t.Context(), log, p, func(m *postrider.Message) {
				mu.Lock()
				defer mu.Unlock()
				if !seen[m.ID] {
					stored[m.Key], seen[m.ID] = append(stored[m.Key], m.ID), true
				}
			})
			if err != nil {
				w.t.Errorf("read %s: %v", p.Name, err)
			}
		})
	}
	reading.Wait()
	return stored
}

// readStored calls note with every message that a partition of a log has now.
func readStored(ctx context.Context, log postrider.Log, p postrider.LogPartition, note func(m *postrider.Message)) error {
	r, err := log.ReadLog(ctx, p, p.First-1)
	if err != nil {
		return err
	}
	for at := p.First - 1; at < p.End; {
		got, err := r.Read(ctx, 100, 1<<20)
		if err != nil {
			return fmt.Errorf("after %d of %d: %w", at, p.End, errors.Join(err, r.Close(ctx)))
		}
		for _, d := range got {
			if at = d.Position.Offset; d.Message != nil {
				note(d.Message)
			}
		}
	}
	return r.Close(ctx)
}
