package natsbroker_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/brokertest"
	natsbroker "github.com/postrider/postrider/broker/nats"
)

func TestSubscriberConformance(t *testing.T) {
	t.Parallel()
	brokertest.RunSubscriber(t, brokertest.SubscriberHarness{
		Features: brokertest.SubscriberFeatures{
			Unordered: "a message that is redelivered comes after others of its key",
		},
		New: func(t *testing.T) brokertest.SubscriberEnv {
			return subscriberEnv(t, startEmbedded(t, nil), natsbroker.SubscriberConfig{ConfirmAcks: true})
		},
	})
}

func TestSubscriberConformanceOrdered(t *testing.T) {
	t.Parallel()
	brokertest.RunSubscriber(t, brokertest.SubscriberHarness{
		Features: brokertest.SubscriberFeatures{
			OneInFlight:     "that is how order is kept",
			UnconfirmedAcks: "acknowledgements are not confirmed by default",
		},
		New: func(t *testing.T) brokertest.SubscriberEnv {
			return subscriberEnv(t, startProcess(t), natsbroker.SubscriberConfig{Ordered: true})
		},
	})
}

func subscriberEnv(t *testing.T, s natsServer, cfg natsbroker.SubscriberConfig) brokertest.SubscriberEnv {
	const topic = "orders.placed"
	quick := []nats.Option{nats.CustomReconnectDelay(func(int) time.Duration { return 10 * time.Millisecond })}
	cfg.Stream, cfg.Topics = "ORDERS", []string{topic}
	cfg.PublishTimeout, cfg.Options = 3*time.Second, quick
	p := open(t, "nats://"+s.address(), natsbroker.Config{Stream: "ORDERS", PublishTimeout: 15 * time.Second, Options: quick})
	return brokertest.SubscriberEnv{
		Topic:     topic,
		Publisher: p,
		Member: func(t testing.TB, group string) brokertest.Member {
			faults := newProxy(t, s.address())
			c := cfg
			if c.Durable = group; group != "" {
				c.AckWait = 2 * time.Second
			}
			return brokertest.Member{Subscriber: openSubscriber(t, faults.url(), c), Cut: faults.Sever, Restore: faults.Restore}
		},
		Poison: func(t testing.TB, m *postrider.Message) {
			_, js := connect(t, s.address())
			out := &nats.Msg{Subject: natsbroker.Subject("ORDERS.", topic), Header: nats.Header{}, Data: m.Payload}
			for name, value := range (postrider.CloudEventsBinary{}).Headers(m) {
				out.Header[name] = []string{value}
			}
			out.Header["ce-time"] = []string{"yesterday"}
			if _, err := js.PublishMsg(t.Context(), out); err != nil {
				t.Fatal(err)
			}
		},
		Recreate: func(t testing.TB) { recreate(t, s.address(), "ORDERS") },
		Stop:     s.stop,
		Start:    s.start,
	}
}

func openSubscriber(t testing.TB, url string, cfg natsbroker.SubscriberConfig) *natsbroker.Subscriber {
	t.Helper()
	s, err := natsbroker.OpenSubscriber(t.Context(), url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// recreate deletes a stream and creates it again with the same configuration. The server removes the folder of all streams in the
// background if it is empty, and fails to create a stream at that moment: another stream keeps the folder.
func recreate(t testing.TB, address, name string) {
	t.Helper()
	_, js := connect(t, address)
	stream, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "STAYS", Subjects: []string{"stays"}}); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), stream.CachedInfo().Config); err != nil {
		t.Fatal(err)
	}
}
