package rabbitmqbroker_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postrider/postrider"
	rabbitmqbroker "github.com/postrider/postrider/broker/rabbitmq"
)

// BenchmarkPublish compares the publisher, called like by a relay (four concurrent calls of 1,000 messages with 500
// bytes of payload), with the client's own publishing of persistent, mandatory messages with deferred confirms, 1,024 at
// a time. Both publish in turn to a new queue of the same server. "headers" is the client with the publisher's headers.
func BenchmarkPublish(b *testing.B) {
	for _, kind := range []string{rabbitmqbroker.QuorumQueue, rabbitmqbroker.ClassicQueue} {
		b.Run(kind, func(b *testing.B) { benchmarkPublish(b, kind) })
	}
}

func benchmarkPublish(b *testing.B, kind string) {
	const count = 20_000
	ch := dial(b, running(b))
	exchange := unique("exchange")
	p := open(b, running(b), rabbitmqbroker.Config{Exchange: exchange})
	b.Cleanup(func() { deleteExchange(b, ch, exchange) })
	rates := make(map[string][]float64)
	measure := func(name string, publish func(b *testing.B, msgs []*postrider.Message)) {
		queue := unique("queue")
		if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": kind}); err != nil {
			b.Fatal(err)
		}
		if err := ch.QueueBind(queue, "#", exchange, false, nil); err != nil {
			b.Fatal(err)
		}
		msgs := benchMessages(count)
		began := time.Now()
		publish(b, msgs)
		rates[name] = append(rates[name], count/time.Since(began).Seconds())
		deleteQueue(b, ch, queue)
	}
	for b.Loop() {
		measure("raw", func(b *testing.B, msgs []*postrider.Message) { publishRaw(b, exchange, msgs, false) })
		measure("postrider", func(b *testing.B, msgs []*postrider.Message) { publishAsRelay(b, p, msgs) })
		measure("headers", func(b *testing.B, msgs []*postrider.Message) { publishRaw(b, exchange, msgs, true) })
	}
	median := func(name string) float64 {
		slices.Sort(rates[name])
		return rates[name][len(rates[name])/2]
	}
	for name := range rates {
		b.ReportMetric(median(name), name+"-msg/s")
	}
	b.ReportMetric(median("postrider")/median("raw"), "of-raw")
	b.ReportMetric(median("postrider")/median("headers"), "of-headers")
	b.ReportMetric(0, "ns/op")
}

func benchMessages(n int) []*postrider.Message {
	payload := bytes.Repeat([]byte("x"), 500)
	msgs := make([]*postrider.Message, n)
	for i := range msgs {
		msgs[i] = &postrider.Message{
			ID: fmt.Sprintf("0197a1b2-0000-7000-8000-%012d", i), Type: "order.placed", Source: "/shop", Topic: "order.placed",
			Key: "order/" + strconv.Itoa(i%5_000), Time: time.Now(), ContentType: "application/json", Payload: payload,
			Sequence: int64(i + 1), CreatedAt: time.Now(),
		}
	}
	return msgs
}

func publishAsRelay(b *testing.B, p *rabbitmqbroker.Publisher, msgs []*postrider.Message) {
	batches := make(chan []*postrider.Message, len(msgs)/1_000+1)
	for batch := range slices.Chunk(msgs, 1_000) {
		batches <- batch
	}
	close(batches)
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			for batch := range batches {
				if errs := p.Publish(b.Context(), batch); errs != nil {
					b.Errorf("publish: %v", errs[0])
				}
			}
		})
	}
	calls.Wait()
}

func publishRaw(b *testing.B, exchange string, msgs []*postrider.Message, all bool) {
	ch := dial(b, running(b))
	defer ch.Close()
	if err := ch.Confirm(false); err != nil {
		b.Fatal(err)
	}
	waiting := make([]*amqp.DeferredConfirmation, 0, len(msgs))
	for i, m := range msgs {
		if i >= rabbitmqbroker.DefaultMaxInFlight && !waiting[i-rabbitmqbroker.DefaultMaxInFlight].Wait() {
			b.Fatal("not acknowledged")
		}
		out := amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: m.ID, ContentType: m.ContentType, Body: m.Payload}
		if all {
			out.Headers = make(amqp.Table)
			for name, value := range (postrider.CloudEventsBinary{Prefix: "cloudEvents_", UTF8: true}).Headers(m) {
				out.Headers[name] = value
			}
		}
		c, err := ch.PublishWithDeferredConfirm(exchange, m.Topic, true, false, out)
		if err != nil {
			b.Fatal(err)
		}
		waiting = append(waiting, c)
	}
	for _, c := range waiting {
		if !c.Wait() {
			b.Fatal("not acknowledged")
		}
	}
}

// BenchmarkOneKey measures the rate of a single key, where every message waits for the acknowledgement of the previous
// one.
func BenchmarkOneKey(b *testing.B) {
	for _, kind := range []string{rabbitmqbroker.QuorumQueue, rabbitmqbroker.ClassicQueue} {
		b.Run(kind, func(b *testing.B) {
			ch := dial(b, running(b))
			queue := unique("queue")
			if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": kind}); err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { deleteQueue(b, ch, queue) })
			p := open(b, running(b), rabbitmqbroker.Config{Exchange: "amq.default"})
			msgs := benchMessages(200)
			for _, m := range msgs {
				m.Key, m.Topic = "order/1", queue
			}
			sent := 0
			for b.Loop() {
				if errs := p.Publish(b.Context(), msgs); errs != nil {
					b.Fatal(errs[0])
				}
				sent += len(msgs)
			}
			b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}
