package natsbroker_test

import (
	"errors"
	"strings"
	"testing"
	"time"

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

// TestLogPassesOtherTopics: a reader of some topics says how far the stream has nothing for it, so that messages of other topics, which
// the stream removes at last, are not taken for messages that it has missed.
func TestLogPassesOtherTopics(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	conn, js := connect(t, s.address())
	cfg := natsbroker.Config{Stream: "ORDERS"}
	p, err := natsbroker.New(t.Context(), conn, cfg)
	if err != nil {
		t.Fatal(err)
	}
	publish := func(topic string) string { return publishTo(t, p, topic) }
	read := natsbroker.SubscriberConfig{Config: cfg, Topics: []string{"rare"}}
	log, err := natsbroker.NewSubscriber(t.Context(), conn, read)
	if err != nil {
		t.Fatal(err)
	}
	first := publish("rare")
	for range 5 {
		publish("frequent")
	}
	parts, err := log.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := log.ReadLog(t.Context(), parts[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	next := func(offset int64, id string) {
		t.Helper()
		got, err := r.Read(t.Context(), 10, 1<<20)
		if err != nil || len(got) != 1 || got[0].Position.Offset != offset {
			t.Fatalf("read %v, %v; want one delivery at %d", got, err, offset)
		}
		if m := got[0].Message; (m == nil) != (id == "") || m != nil && m.ID != id {
			t.Fatalf("at %d: %+v, want message %q", offset, m, id)
		}
		if state, err := log.VerifyPosition(t.Context(), got[0].Position); err != nil || state != postrider.PositionKept {
			t.Errorf("%+v is %v, %v; want kept", got[0].Position, state, err)
		}
	}
	next(1, first)
	next(6, "") // with the next heartbeat
	next(7, publish("rare"))
	publish("frequent")
	stream, err := js.Stream(t.Context(), "ORDERS")
	if err == nil {
		err = stream.DeleteMsg(t.Context(), 8) // nothing is left there that could be compared
	}
	if err != nil {
		t.Fatal(err)
	}
	next(9, publish("rare"))
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// publishTo publishes a message to a topic and returns its ID.
func publishTo(t testing.TB, p *natsbroker.Publisher, topic string) string {
	t.Helper()
	m := &postrider.Message{ID: postrider.NewID(), Topic: topic, Type: "t", Key: "k", Payload: []byte("{}")}
	m.FillDefaults("test", time.Now())
	if err := errors.Join(p.Publish(t.Context(), []*postrider.Message{m})...); err != nil {
		t.Fatal(err)
	}
	return m.ID
}
