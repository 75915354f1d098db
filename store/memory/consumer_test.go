package memory_test

import (
	"testing"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/store/memory"
)

var consumers = inboxtest.Harness[*memory.Tx]{
	Open: func(testing.TB) inboxtest.Store[*memory.Tx] {
		return memory.New(memory.Config{Partitions: 4})
	},
	Bubble:    true,
	Histories: consumerHistories,
}

func TestConsumers(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, consumers)
}

func TestConsumersModel(t *testing.T) {
	t.Parallel()
	inboxtest.Model(t, consumers)
}

// TestBroker runs the tests of real brokers against the in-memory broker.
func TestBroker(t *testing.T) {
	t.Parallel()
	h := consumers
	h.Bubble = false
	inboxtest.Broker(t, h, func(t testing.TB) inboxtest.Source {
		broker, err := memorybroker.New(memorybroker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return inboxtest.Source{
			Publish: broker.Publish, Topic: "orders",
			Join: func(t testing.TB) postrider.Subscriber {
				s, err := broker.Subscriber(memorybroker.SubscriberConfig{Group: "view", Topics: []string{"orders"}, Partitions: 3})
				if err != nil {
					t.Fatal(err)
				}
				return s
			},
		}
	})
}
