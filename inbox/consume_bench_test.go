package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store/memory"
)

// BenchmarkConsume: what a message takes, over a store and a broker in memory.
func BenchmarkConsume(b *testing.B) {
	for _, way := range []struct {
		name  string
		group string
		batch int
	}{{"log", "", 100}, {"group", "view", 1}} {
		b.Run(way.name, func(b *testing.B) {
			const many = 5_000
			var took time.Duration
			var allocated uint64
			for b.Loop() {
				all, run := consumerOf(b, way.group, way.batch, many)
				runtime.GC()
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				began := time.Now()
				stop := run()
				<-all
				took += time.Since(began)
				runtime.ReadMemStats(&after)
				allocated += after.Mallocs - before.Mallocs
				stop()
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N)/many, "ns/message")
			b.ReportMetric(float64(allocated)/float64(b.N)/many, "allocs/message")
		})
	}
}

// consumerOf returns a consumer of many messages: a channel that is closed when it has handled all, and a function that runs it and
// returns one that stops it.
func consumerOf(b *testing.B, group string, batch, many int) (all chan struct{}, run func() (stop func())) {
	broker, err := memorybroker.New(memorybroker.Config{})
	if err != nil {
		b.Fatal(err)
	}
	source, sourceErr := broker.Subscriber(memorybroker.SubscriberConfig{Group: group, Topics: []string{"t"}, Partitions: 1})
	in, inErr := inbox.New(memory.New(memory.Config{}))
	if err := errors.Join(sourceErr, inErr); err != nil {
		b.Fatal(err)
	}
	c, err := inbox.NewConsumer(in, source, inbox.ConsumerConfig{Name: "view", Batch: batch, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	all = make(chan struct{})
	var handled atomic.Int64
	if err := c.HandleFunc("t", func(context.Context, *memory.Tx, *postrider.Message) error {
		if handled.Add(1) == int64(many) {
			close(all)
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	msgs := make([]*postrider.Message, many)
	for i := range msgs {
		msgs[i] = &postrider.Message{ID: postrider.NewID(), Type: "t", Topic: "t", Source: "s", Key: fmt.Sprint(i % 50), Time: time.Now(), Payload: []byte("{}")}
	}
	if err := errors.Join(broker.Publish(b.Context(), msgs)...); err != nil {
		b.Fatal(err)
	}
	ended := make(chan error, 1)
	return all, func() func() {
		go func() { ended <- c.Run(b.Context()) }()
		return func() {
			if err := errors.Join(c.Stop(context.Background()), <-ended); err != nil {
				b.Fatal(err)
			}
		}
	}
}
