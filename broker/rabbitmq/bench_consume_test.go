package rabbitmqbroker_test

import (
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	rabbitmqbroker "github.com/postrider/postrider/broker/rabbitmq"
)

// BenchmarkConsume compares a subscription that acknowledges every delivery immediately with the client's own consumer
// and the same prefetch, which acknowledges each delivery, or every hundredth for all before it.
func BenchmarkConsume(b *testing.B) {
	for _, kind := range []string{rabbitmqbroker.QuorumQueue, rabbitmqbroker.ClassicQueue} {
		b.Run(kind, func(b *testing.B) { benchmarkConsume(b, kind) })
	}
}

func benchmarkConsume(b *testing.B, kind string) {
	const count = 20_000
	ch := dial(b, running(b))
	rates := make(map[string][]float64)
	measure := func(name string, consume func(b *testing.B, queue string, n int)) {
		queue := unique("queue")
		if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": kind}); err != nil {
			b.Fatal(err)
		}
		msgs := benchMessages(count)
		for _, m := range msgs {
			m.Topic = queue
		}
		publishRaw(b, "", msgs, true)
		began := time.Now()
		consume(b, queue, count)
		rates[name] = append(rates[name], count/time.Since(began).Seconds())
		deleteQueue(b, ch, queue)
	}
	for b.Loop() {
		measure("raw", func(b *testing.B, queue string, n int) { consumeRaw(b, queue, n, 1) })
		measure("postrider", func(b *testing.B, queue string, n int) { consume(b, queue, kind, n) })
		measure("multiple", func(b *testing.B, queue string, n int) { consumeRaw(b, queue, n, 100) })
	}
	for name := range rates {
		slices.Sort(rates[name])
		b.ReportMetric(rates[name][len(rates[name])/2], name+"-msg/s")
	}
	b.ReportMetric(0, "ns/op")
}

func consume(b *testing.B, queue, kind string, n int) {
	s, err := rabbitmqbroker.OpenSubscriber(b.Context(), running(b), rabbitmqbroker.SubscriberConfig{Queue: queue, QueueType: kind})
	if err != nil {
		b.Fatal(err)
	}
	sub, err := s.Subscribe(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for n > 0 {
		got, err := sub.Receive(b.Context(), n)
		if err != nil {
			b.Fatal(err)
		}
		for _, d := range got {
			if err := d.Ack(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		n -= len(got)
	}
	if err := sub.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func consumeRaw(b *testing.B, queue string, n, every int) {
	ch := dial(b, running(b))
	defer ch.Close()
	if err := ch.Qos(rabbitmqbroker.DefaultPrefetch, 0, false); err != nil {
		b.Fatal(err)
	}
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		b.Fatal(err)
	}
	for i := 1; i <= n; i++ {
		d := <-deliveries
		if i%every == 0 {
			if err := d.Ack(every > 1); err != nil {
				b.Fatal(err)
			}
		}
	}
}
