package natsbroker

import (
	"testing"

	"github.com/nats-io/nats.go"
)

// FuzzDecode checks that any message of a stream is a message, or what could be read of it.
func FuzzDecode(f *testing.F) {
	f.Add("ORDERS.order.placed", "ce-specversion", "1.0", "ce-id", "1", []byte("{}"))
	f.Add("elsewhere", "Content-Type", "application/cloudevents+json", "", "", []byte(`{"specversion":"1.0"`))
	f.Fuzz(func(t *testing.T, subject, first, a, second, b string, data []byte) {
		s := &Subscriber{cfg: SubscriberConfig{Config: Config{Prefix: "ORDERS."}}}
		m, err := s.decode(&nats.Msg{Subject: subject, Header: nats.Header{first: {a, b}, second: {b}}, Data: data})
		if m == nil {
			t.Fatalf("no message, error %v", err)
		}
		if topic, ok := Topic("ORDERS.", subject); ok == nil && m.Topic != topic {
			t.Errorf("topic %q, want %q", m.Topic, topic)
		}
	})
}
