package telemetry_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/telemetry"
)

// BenchmarkAttempted is the cost of a batch of a thousand messages.
func BenchmarkAttempted(b *testing.B) {
	w := newWorld(b, telemetry.Config{})
	o := w.Relay(telemetry.RelayOf{Store: "main", Relay: "r", System: "nats"})
	msgs, attempts := make([]*postrider.Message, 1000), make([]observe.Attempt, 1000)
	for i := range msgs {
		msgs[i] = &postrider.Message{ID: fmt.Sprint(i), Type: "t", CreatedAt: time.Now().Add(-time.Duration(i) * time.Millisecond)}
		attempts[i] = observe.Attempt{Message: msgs[i], Outcome: observe.AttemptDelivered}
	}
	b.ReportAllocs()
	for b.Loop() {
		o.Attempted(o.Attempting(b.Context(), msgs), observe.Attempted{Attempts: attempts, Took: time.Millisecond})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/msg")
}
