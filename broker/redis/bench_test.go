package redisbroker_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/postrider/postrider"
	redisbroker "github.com/postrider/postrider/broker/redis"
)

// benchmarkMessages returns messages as a relay publishes them: 500 bytes of payload, 5,000 keys.
func benchmarkMessages(n int) []*postrider.Message {
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

// BenchmarkPublish compares the publisher, called like by a relay (four concurrent calls of 1,000 messages), with the
// client's own pipelines of 1,000 XADDs in four goroutines, to eight streams. Both publish in turn to the same server, a
// separate process with appendfsync no. "raw" has two fields, ID and payload; "fields" has all fields that the publisher
// writes.
func BenchmarkPublish(b *testing.B) {
	const messages = 40_000
	s := startServer(b)
	client := s.client(b)
	rates := make(map[string][]float64)
	msgs := benchmarkMessages(messages)
	measure := func(name string, publish func(batch []*postrider.Message)) {
		batches := make(chan []*postrider.Message, messages/1_000+1)
		for batch := range slices.Chunk(msgs, 1_000) {
			batches <- batch
		}
		close(batches)
		began := time.Now()
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				for batch := range batches {
					publish(batch)
				}
			})
		}
		calls.Wait()
		rates[name] = append(rates[name], messages/time.Since(began).Seconds())
		if err := client.FlushAll(b.Context()).Err(); err != nil {
			b.Fatal(err)
		}
	}
	p := open(b, s.url(), redisbroker.Config{})
	raw := func(all bool) func([]*postrider.Message) {
		return func(batch []*postrider.Message) { publishRaw(b, client, batch, all) }
	}
	for b.Loop() {
		measure("raw", raw(false))
		measure("postrider", func(batch []*postrider.Message) {
			if errs := p.Publish(b.Context(), batch); errs != nil {
				b.Errorf("publish: %v", errs[0])
			}
		})
		measure("fields", raw(true))
	}
	median := func(name string) float64 {
		slices.Sort(rates[name])
		return rates[name][len(rates[name])/2]
	}
	for name := range rates {
		b.ReportMetric(median(name), name+"-msg/s")
	}
	b.ReportMetric(median("postrider")/median("raw"), "of-raw")
	b.ReportMetric(median("postrider")/median("fields"), "of-fields")
	b.ReportMetric(0, "ns/op")
}

func publishRaw(b *testing.B, client *redis.Client, batch []*postrider.Message, all bool) {
	_, err := client.Pipelined(b.Context(), func(pipe redis.Pipeliner) error {
		for _, m := range batch {
			args := []any{"xadd", fmt.Sprintf("raw:%d", postrider.PartitionOf(m.Key, m.ID, 8)), "*"}
			if all {
				for name, value := range (postrider.CloudEventsBinary{Prefix: "ce_", UTF8: true}).Headers(m) {
					args = append(args, name, value)
				}
			} else {
				args = append(args, "id", m.ID)
			}
			pipe.Do(b.Context(), append(args, "data", m.Payload)...)
		}
		return nil
	})
	if err != nil {
		b.Error(err)
	}
}

// BenchmarkConsume reads and acknowledges messages, one after another and in 16 goroutines.
func BenchmarkConsume(b *testing.B) {
	for _, goroutines := range []int{1, 16} {
		b.Run(strconv.Itoa(goroutines), func(b *testing.B) {
			s := startServer(b)
			sub := subscribe(b, s.url()+"?group=g&topics=order.placed", redisbroker.SubscriberConfig{})
			p := open(b, s.url(), redisbroker.Config{})
			const messages = 10_000
			consumed := 0
			for b.Loop() {
				b.StopTimer()
				for batch := range slices.Chunk(benchmarkMessages(messages), 1_000) {
					if errs := p.Publish(b.Context(), batch); errs != nil {
						b.Fatal(errs[0])
					}
				}
				b.StartTimer()
				places := make(chan struct{}, goroutines)
				for left := messages; left > 0; {
					got, err := sub.Receive(b.Context(), min(left, 1_000))
					if err != nil {
						b.Fatal(err)
					}
					left -= len(got)
					for _, d := range got {
						places <- struct{}{}
						go func() {
							if err := d.Ack(b.Context()); err != nil {
								b.Error(err)
							}
							<-places
						}()
					}
				}
				for range goroutines {
					places <- struct{}{}
				}
				consumed += messages
			}
			b.ReportMetric(float64(consumed)/b.Elapsed().Seconds(), "msg/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
