package natsbroker_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/brokertest"
	natsbroker "github.com/postrider/postrider/broker/nats"
)

func TestLogConformance(t *testing.T) {
	t.Parallel()
	brokertest.RunLog(t, brokertest.LogHarness{
		NoLoseTail: "a single server does not lose what it has stored; a restored backup is tested with consumers",
		NoGrow:     "a stream is one partition",
		New: func(t *testing.T) brokertest.LogEnv {
			s := startEmbedded(t, nil)
			env := subscriberEnv(t, s, natsbroker.SubscriberConfig{})
			return brokertest.LogEnv{
				Topic: env.Topic, Publisher: env.Publisher,
				Member: func(t testing.TB) brokertest.Member { return env.Member(t, "") },
				Poison: env.Poison, Recreate: env.Recreate, Stop: env.Stop, Start: env.Start,
				Expire: func(t testing.TB, n int) { purge(t, s.address(), "ORDERS", n) },
				Lag: func(t testing.TB, consumer string) int64 {
					_, js := connect(t, s.address())
					c, err := js.Consumer(t.Context(), "ORDERS", "postrider-"+strings.NewReplacer(" ", "_", ".", "_").Replace(consumer))
					if err != nil {
						t.Fatal(err)
					}
					return int64(c.CachedInfo().NumPending)
				},
			}
		},
	})
}

// purge removes the first n messages of a stream.
func purge(t testing.TB, address, name string, n int) {
	t.Helper()
	_, js := connect(t, address)
	stream, err := js.Stream(t.Context(), name)
	if err == nil {
		err = stream.Purge(t.Context(), jetstream.WithPurgeSequence(stream.CachedInfo().State.FirstSeq+uint64(n)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestLogNeedsLimits: a stream that removes acknowledged messages has no positions.
func TestLogNeedsLimits(t *testing.T) {
	t.Parallel()
	for _, retention := range []jetstream.RetentionPolicy{jetstream.InterestPolicy, jetstream.WorkQueuePolicy} {
		s := startEmbedded(t, nil)
		conn, js := connect(t, s.address())
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"ORDERS.>"}, Retention: retention}); err != nil {
			t.Fatal(err)
		}
		_, err := natsbroker.NewSubscriber(t.Context(), conn, natsbroker.SubscriberConfig{Config: natsbroker.Config{Stream: "ORDERS"}})
		if err == nil || !strings.Contains(err.Error(), "--retention=limits") || postrider.OutcomeOf(err).Kind == postrider.BrokerUnavailable {
			t.Errorf("retention %v: %v, want that limits are needed", retention, err)
		}
	}
}
