package crash

import (
	"context"
	"fmt"
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
	if b.start == nil {
		return
	}
	if err := w.broker.Stop(); err != nil {
		w.t.Fatal(err)
	}
	w.start = func(port int) (*process.Server, error) { return b.start(w.t.Context(), w.t, w.dir, port) }
	w.startBroker(0)
	w.configure(w.broker.URL+b.options, relaySettings)
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
	stored := make(map[string][]string)
	seen := make(map[string]bool)
	for _, p := range parts {
		r, err := log.ReadLog(w.t.Context(), p, p.First-1)
		if err != nil {
			w.t.Fatal(err)
		}
		for at := p.First - 1; at < p.End; {
			got, err := r.Read(w.t.Context(), 100, 1<<20)
			if err != nil {
				w.t.Fatal(fmt.Errorf("read %s after %d of %d: %w", p.Name, at, p.End, err))
			}
			for _, d := range got {
				at = d.Position.Offset
				if m := d.Message; m != nil && !seen[m.ID] {
					stored[m.Key], seen[m.ID] = append(stored[m.Key], m.ID), true
				}
			}
		}
		if err := r.Close(w.t.Context()); err != nil {
			w.t.Error(err)
		}
	}
	return stored
}
