// Package kafkabench_test compares publishing to Kafka with the client's own best rate.
package kafkabench_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider"
	kafkabroker "github.com/postrider/postrider/broker/kafka"
	"github.com/postrider/postrider/internal/servertest"
)

const (
	distinct   = 200_000
	messages   = 5 * distinct // a run of less than a second is not significant
	keys       = 5_000
	partitions = 6
	batch      = 1_000
	calls      = 32 // concurrent
	relayCalls = 4  // concurrent calls of a relay by default
)

// BenchmarkPublish compares the publisher (calls of 1,000 messages with 500 bytes of payload, 32 concurrent) with the
// client's own pipelined producing of everything at once: idempotent, all in-sync replicas, the same keys, only key and
// payload.
//
//   - "same": the client produces the same records as the publisher, created beforehand.
//   - "headers": the same, created while producing.
//   - "relay": the publisher with four concurrent calls, a relay's default.
//   - "one-key": the publisher with a single key.
//
// All produce in turn to topics of the same server; a first round warms it up and does not count. The client's processor
// time per message is reported next to the rate.
func BenchmarkPublish(b *testing.B) {
	u, err := url.Parse(servertest.Get(b, servertest.Kafka))
	if err != nil || u.Host == "" {
		b.Fatalf("%s must be a URL such as kafka://127.0.0.1:9092: %v", servertest.Kafka, err)
	}
	r := &round{address: u.Host, rates: make(map[string][]float64), costs: make(map[string][]float64), msgs: newMessages(keys), oneKey: newMessages(1)}
	r.run(b, false)
	for b.Loop() {
		r.run(b, true)
	}
	for name := range r.rates {
		b.ReportMetric(median(r.rates[name]), name+"-msg/s")
		b.ReportMetric(median(r.costs[name]), name+"-µs/msg")
	}
	b.ReportMetric(r.to("raw"), "of-raw")
	b.ReportMetric(r.to("same"), "of-same")
	b.ReportMetric(r.to("headers"), "of-headers")
	b.ReportMetric(0, "ns/op")
}

func newMessages(keys int) []*postrider.Message {
	random := rand.New(rand.NewPCG(1, 2)) // hexadecimal text, so that compression takes some work and has some effect
	text := make([]byte, 64<<10)
	for i := range text {
		text[i] = "0123456789abcdef"[random.IntN(16)]
	}
	msgs := make([]*postrider.Message, distinct)
	for i := range msgs {
		at := random.IntN(len(text) - 500)
		payload := text[at : at+500]
		msgs[i] = &postrider.Message{
			ID: fmt.Sprintf("0197a1b2-0000-7000-8000-%012d", i), Type: "order.placed", Source: "/shop", Topic: "order.placed",
			Key: "order/" + strconv.Itoa(i%keys), Time: time.Now(), ContentType: "application/json", Payload: payload,
			Sequence: int64(i + 1), CreatedAt: time.Now(),
		}
	}
	return msgs
}

// round is one round of all measurements, with the results of earlier rounds.
type round struct {
	address      string
	rates, costs map[string][]float64 // messages per second, and microseconds per message
	msgs, oneKey []*postrider.Message
}

func (r *round) run(b *testing.B, counts bool) {
	for _, m := range []struct {
		name    string
		prepare func(b *testing.B, topic string) (publish, end func())
	}{
		{"raw", func(b *testing.B, topic string) (_, _ func()) { return r.client(b, topic, r.plain) }},
		{"postrider", func(b *testing.B, topic string) (_, _ func()) { return r.publisher(b, topic, calls, r.msgs) }},
		{"same", func(b *testing.B, topic string) (_, _ func()) { return r.client(b, topic, withHeaders(r.msgs)) }},
		{"headers", func(b *testing.B, topic string) (_, _ func()) { return r.client(b, topic, r.encoded) }},
		{"relay", func(b *testing.B, topic string) (_, _ func()) { return r.publisher(b, topic, relayCalls, r.msgs) }},
		{"one-key", func(b *testing.B, topic string) (_, _ func()) { return r.publisher(b, topic, calls, r.oneKey) }},
	} {
		topic := fmt.Sprintf("bench-%d", time.Now().UnixNano())
		admin := r.createTopic(b, topic)
		publish, end := m.prepare(b, topic)
		began, before := time.Now(), processorTime(b)
		publish()
		if took := time.Since(began); counts {
			r.rates[m.name] = append(r.rates[m.name], messages/took.Seconds())
			r.costs[m.name] = append(r.costs[m.name], float64((processorTime(b)-before).Microseconds())/messages)
		}
		end()
		if _, err := admin.DeleteTopic(b.Context(), topic); err != nil {
			b.Fatal(err)
		}
		admin.Close()
	}
}

func (r *round) to(name string) float64 { return median(r.rates["postrider"]) / median(r.rates[name]) }

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

func (r *round) createTopic(b *testing.B, topic string) *kadm.Client {
	client, err := kgo.NewClient(kgo.SeedBrokers(r.address))
	if err != nil {
		b.Fatal(err)
	}
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(b.Context(), partitions, 1, nil, topic); err != nil {
		b.Fatal(err)
	}
	for { // until every broker knows the topic
		listed, err := admin.ListTopics(b.Context(), topic)
		if err != nil {
			b.Fatal(err)
		}
		if len(listed[topic].Partitions) == partitions {
			return admin
		}
	}
}

// publisher publishes with the given number of concurrent calls.
func (r *round) publisher(b *testing.B, topic string, calls int, msgs []*postrider.Message) (publish, end func()) {
	p, err := kafkabroker.Open(b.Context(), "kafka://"+r.address, kafkabroker.Config{Topic: topic})
	if err != nil {
		b.Fatal(err)
	}
	batches := make(chan []*postrider.Message, messages/batch)
	for part := range slices.Chunk(slices.Repeat(msgs, messages/distinct), batch) {
		batches <- part
	}
	close(batches)
	if errs := p.Publish(b.Context(), msgs[:batch]); errs != nil { // opens connections and loads the topic's metadata
		b.Fatal(errs[0])
	}
	publish = func() {
		var running sync.WaitGroup
		for range calls {
			running.Go(func() {
				for part := range batches {
					for _, err := range p.Publish(b.Context(), part) {
						if err != nil {
							b.Errorf("publish: %v", err)
							return
						}
					}
				}
			})
		}
		running.Wait()
	}
	return publish, func() {
		if err := p.Close(); err != nil {
			b.Error(err)
		}
	}
}

// client is the client's own best: it is given everything at once.
func (r *round) client(b *testing.B, topic string, records iter.Seq[*kgo.Record]) (publish, end func()) {
	client, err := kgo.NewClient(kgo.SeedBrokers(r.address), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchMaxBytes(1048588))
	if err != nil {
		b.Fatal(err)
	}
	for range partitions { // opens connections and loads the topic's metadata
		if err := client.ProduceSync(b.Context(), &kgo.Record{Value: []byte("first")}).FirstErr(); err != nil {
			b.Fatal(err)
		}
	}
	return func() {
		for record := range records {
			client.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
				if err != nil {
					b.Errorf("produce: %v", err)
				}
			})
		}
		if err := client.Flush(b.Context()); err != nil {
			b.Error(err)
		}
	}, client.Close
}

// plain yields records with only key and payload.
func (r *round) plain(yield func(*kgo.Record) bool) {
	for _, m := range slices.Repeat(r.msgs, messages/distinct) {
		if !yield(&kgo.Record{Key: []byte(m.Key), Value: m.Payload}) {
			return
		}
	}
}

// encoded yields records with the publisher's headers.
func (r *round) encoded(yield func(*kgo.Record) bool) {
	for _, m := range slices.Repeat(r.msgs, messages/distinct) {
		if !yield(newRecord(m)) {
			return
		}
	}
}

func newRecord(m *postrider.Message) *kgo.Record {
	record := &kgo.Record{Key: []byte(m.Key), Value: m.Payload}
	for name, value := range (postrider.CloudEventsBinary{Prefix: "ce_", UTF8: true}).Headers(m) {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	return record
}

// withHeaders creates such records beforehand and reuses them: the client has long finished with a record when it is used
// again.
func withHeaders(msgs []*postrider.Message) iter.Seq[*kgo.Record] {
	records := make([]*kgo.Record, len(msgs))
	for i, m := range msgs {
		records[i] = newRecord(m)
	}
	return slices.Values(slices.Repeat(records, messages/distinct))
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
