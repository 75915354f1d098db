package natsbroker_test

import (
	"slices"
	"testing"

	natsbroker "github.com/postrider/postrider/broker/nats"
)

// BenchmarkConsume reads and acknowledges one message after another.
func BenchmarkConsume(b *testing.B) {
	for name, cfg := range map[string]natsbroker.SubscriberConfig{
		"plain": {}, "confirmed": {ConfirmAcks: true}, "ordered": {Ordered: true},
	} {
		b.Run(name, func(b *testing.B) {
			s := startProcess(b)
			p, err := natsbroker.Open(b.Context(), "nats://"+s.address(), natsbroker.Config{Stream: "BENCH"})
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			cfg.Stream, cfg.Durable = "BENCH", "g"
			sub, err := openSubscriber(b, "nats://"+s.address(), cfg).Subscribe(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			defer sub.Close(b.Context())
			const messages = 5_000
			sent, consumed := 0, 0
			for b.Loop() {
				b.StopTimer()
				msgs := numbered("orders", "", sent+messages)[sent:]
				for batch := range slices.Chunk(msgs, 1_000) {
					if errs := p.Publish(b.Context(), batch); errs != nil {
						b.Fatal(errs[0])
					}
				}
				sent += messages
				b.StartTimer()
				for left := messages; left > 0; {
					got, err := sub.Receive(b.Context(), left)
					if err != nil {
						b.Fatal(err)
					}
					for _, d := range got {
						if err := d.Ack(b.Context()); err != nil {
							b.Fatal(err)
						}
					}
					left -= len(got)
				}
				consumed += messages
			}
			b.ReportMetric(float64(consumed)/b.Elapsed().Seconds(), "msg/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
