package natsbroker_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
)

// BenchmarkPublish compares the publisher, called like by a relay (four concurrent calls of 1,000 messages with 500
// bytes of payload), with the client's own asynchronous publishing with message IDs and 4,096 pending messages. Both
// publish in turn to the same server, which is a separate process. "headers" is the client with the publisher's headers,
// "single" is the publisher with a stream that does not allow batches. µs/msg is CPU time of this process, without the
// server.
func BenchmarkPublish(b *testing.B) {
	const messages = 40_000
	s := startProcess(b)
	rates, cpu := make(map[string][]float64), make(map[string][]float64)
	payload := bytes.Repeat([]byte("x"), 500)
	round := 0
	measure := func(name string, publish func(b *testing.B, address, stream string, msgs []*postrider.Message)) {
		round++
		stream := fmt.Sprintf("BENCH%d", round)
		msgs := make([]*postrider.Message, messages)
		for i := range msgs {
			msgs[i] = &postrider.Message{
				ID: fmt.Sprintf("0197a1b2-0000-7000-8000-%012d", i), Type: "order.placed", Source: "/shop", Topic: "order.placed",
				Key: "order/" + strconv.Itoa(i%5_000), Time: time.Now(), ContentType: "application/json", Payload: payload,
				Sequence: int64(i + 1), CreatedAt: time.Now(),
			}
		}
		began, used := time.Now(), processorTime(b)
		publish(b, s.address(), stream, msgs)
		rates[name] = append(rates[name], messages/time.Since(began).Seconds())
		cpu[name] = append(cpu[name], float64((processorTime(b)-used).Microseconds())/messages)
		deleteStream(b, s.address(), stream)
	}
	for b.Loop() {
		measure("raw", func(b *testing.B, address, stream string, msgs []*postrider.Message) {
			publishRaw(b, address, stream, msgs, false)
		})
		measure("postrider", publishAsRelay)
		measure("single", func(b *testing.B, address, stream string, msgs []*postrider.Message) {
			createStream(b, address, stream, false)
			publishAsRelay(b, address, stream, msgs)
		})
		measure("headers", func(b *testing.B, address, stream string, msgs []*postrider.Message) {
			publishRaw(b, address, stream, msgs, true)
		})
	}
	median := func(figures []float64) float64 {
		slices.Sort(figures)
		return figures[len(figures)/2]
	}
	for name := range rates {
		b.ReportMetric(median(rates[name]), name+"-msg/s")
		b.ReportMetric(median(cpu[name]), name+"-µs/msg")
	}
	b.ReportMetric(median(rates["postrider"])/median(rates["raw"]), "of-raw")
	b.ReportMetric(median(rates["postrider"])/median(rates["headers"]), "of-headers")
	b.ReportMetric(0, "ns/op")
}

// processorTime returns the CPU time used by this process.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func publishAsRelay(b *testing.B, address, stream string, msgs []*postrider.Message) {
	p, err := natsbroker.Open(b.Context(), "nats://"+address, natsbroker.Config{Stream: stream})
	if err != nil {
		b.Fatal(err)
	}
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
	if err := p.Close(); err != nil {
		b.Error(err)
	}
}

func publishRaw(b *testing.B, address, stream string, msgs []*postrider.Message, all bool) {
	conn, err := nats.Connect(address)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(4096))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := js.CreateStream(b.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{stream + ".>"}}); err != nil {
		b.Fatal(err)
	}
	for _, m := range msgs {
		out := &nats.Msg{Subject: stream + "." + m.Topic, Data: m.Payload, Header: nats.Header{nats.MsgIdHdr: []string{m.ID}}}
		if all {
			for name, value := range (postrider.CloudEventsBinary{}).Headers(m) {
				out.Header[name] = []string{value}
			}
		}
		if _, err := js.PublishMsgAsync(out, jetstream.WithStallWait(time.Minute)); err != nil {
			b.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
}

// BenchmarkOneKey measures the rate of a single key: in batches, and with single messages, each of which waits for the
// acknowledgement of the previous one.
func BenchmarkOneKey(b *testing.B) {
	for name, batches := range map[string]bool{"batches": true, "single": false} {
		b.Run(name, func(b *testing.B) { benchmarkOneKey(b, batches) })
	}
}

func benchmarkOneKey(b *testing.B, batches bool) {
	s := startProcess(b)
	createStream(b, s.address(), "BENCH", batches)
	p, err := natsbroker.Open(b.Context(), "nats://"+s.address(), natsbroker.Config{Stream: "BENCH"})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	payload := bytes.Repeat([]byte("x"), 500)
	sent := 0
	for b.Loop() {
		msgs := make([]*postrider.Message, 1_000)
		for i := range msgs {
			sent++
			msgs[i] = &postrider.Message{ID: strconv.Itoa(sent), Type: "order.placed", Topic: "order.placed", Key: "order/1", Payload: payload}
		}
		if errs := p.Publish(b.Context(), msgs); errs != nil {
			b.Fatal(errs[0])
		}
	}
	b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "msg/s")
}
