package memorybroker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/brokertest"
	memorybroker "github.com/postrider/postrider/broker/memory"
)

func TestSubscriberConformance(t *testing.T) {
	t.Parallel()
	const noConnection = "there is no connection that could break"
	configs := map[string]struct {
		cfg      memorybroker.SubscriberConfig
		features brokertest.SubscriberFeatures
	}{
		"queue": {
			memorybroker.SubscriberConfig{AckWait: time.Second},
			brokertest.SubscriberFeatures{
				Unordered:   "members take what comes first",
				NoPositions: "a queue has none",
				NoRecreate:  "a queue has no positions by which a new one could be told",
				NoCut:       noConnection,
			},
		},
		"log": {
			memorybroker.SubscriberConfig{Partitions: 4, AckWait: time.Second}, brokertest.SubscriberFeatures{NoCut: noConnection},
		},
		"log that waits": {memorybroker.SubscriberConfig{Partitions: 2}, brokertest.SubscriberFeatures{NoCut: noConnection}},
	}
	for name, c := range configs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			brokertest.RunSubscriber(t, brokertest.SubscriberHarness{
				Features: c.features,
				New:      func(t *testing.T) brokertest.SubscriberEnv { return subscriberEnv(t, c.cfg) },
			})
		})
	}
}

func subscriberEnv(t *testing.T, cfg memorybroker.SubscriberConfig) brokertest.SubscriberEnv {
	const topic = "orders"
	b := open(t, memorybroker.Config{DedupeWindow: time.Hour})
	return brokertest.SubscriberEnv{
		Topic:     topic,
		Publisher: b,
		Member: func(t testing.TB, group string) brokertest.Member {
			c := cfg
			c.Group, c.Topics = group, []string{topic}
			s, err := b.Subscriber(c)
			if err != nil {
				t.Fatal(err)
			}
			return brokertest.Member{Subscriber: s}
		},
		Poison:   func(_ testing.TB, m *postrider.Message) { b.Poison(m) },
		Recreate: func(testing.TB) { b.Recreate(topic) },
		Stop:     func(testing.TB) { b.SetUnavailable(errors.New("stopped")) },
		Start:    func(testing.TB) { b.SetUnavailable(nil) },
	}
}
