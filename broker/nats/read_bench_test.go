package natsbroker_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
)

// BenchmarkReadTopics reads a stream of ten topics as a log, as a whole or in partitions. server-µs/msg is CPU time of the server, which is a
// separate process, for each message of the stream, whether it is read or not.
func BenchmarkReadTopics(b *testing.B) {
	const messages = 60_000
	s := startProcess(b)
	for _, stream := range []string{"whole", "partitioned"} {
		publishTopics(b, s, natsbroker.Config{Stream: stream, Partitioned: stream == "partitioned"}, messages)
		for _, topics := range []int{10, 1, 2, 9} {
			b.Run(fmt.Sprint(stream, "/", topics), func(b *testing.B) {
				cfg := natsbroker.SubscriberConfig{Config: natsbroker.Config{Stream: stream}}
				for i := range topics % 10 {
					cfg.Topics = append(cfg.Topics, fmt.Sprint("topic", i))
				}
				log := openSubscriber(b, "nats://"+s.address(), cfg)
				used, rounds := serverTime(b, s), 0
				for b.Loop() {
					rounds++
					readMessages(b, log, messages/10*int64(topics))
				}
				b.ReportMetric(float64((serverTime(b, s)-used).Microseconds())/messages/float64(rounds), "server-µs/msg")
				b.ReportMetric(messages*float64(rounds)/b.Elapsed().Seconds(), "msg/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// publishTopics publishes messages of ten topics in turn.
func publishTopics(b *testing.B, s *processServer, cfg natsbroker.Config, messages int) {
	b.Helper()
	p, err := natsbroker.Open(b.Context(), "nats://"+s.address(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	payload := bytes.Repeat([]byte("x"), 500)
	for from := 0; from < messages; from += 1_000 {
		msgs := make([]*postrider.Message, 1_000)
		for i := range msgs {
			msgs[i] = &postrider.Message{ID: strconv.Itoa(from + i), Type: "t", Topic: fmt.Sprint("topic", i%10), Key: strconv.Itoa(from + i), Payload: payload}
			msgs[i].FillDefaults("bench", time.Now())
		}
		for _, err := range p.Publish(b.Context(), msgs) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := p.Close(); err != nil {
		b.Fatal(err)
	}
}

// readMessages reads all partitions of a log at once until there are n messages.
func readMessages(b *testing.B, log postrider.Log, n int64) {
	b.Helper()
	parts, err := log.Partitions(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	ctx, enough := context.WithCancel(b.Context())
	defer enough()
	var left atomic.Int64
	left.Store(n)
	var readers sync.WaitGroup
	for _, part := range parts {
		readers.Go(func() {
			r, err := log.ReadLog(b.Context(), part, 0)
			if err != nil {
				b.Error(err)
				return
			}
			for {
				out, err := r.Read(ctx, 512, 1<<20)
				if err != nil {
					break
				}
				for _, d := range out {
					if d.Message != nil && left.Add(-1) == 0 {
						enough()
					}
				}
			}
			if err := r.Close(b.Context()); err != nil {
				b.Error(err)
			}
		})
	}
	readers.Wait()
}

// serverTime returns the CPU time used by a server.
func serverTime(b *testing.B, s *processServer) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		b.Skip("needs Linux: ", err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	ticks := 0
	for _, field := range fields[11:13] { // user and system, in hundredths of a second
		n, err := strconv.Atoi(field)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// BenchmarkPartitions asks for the state of a log, as each move of a position does. Without a prefix, no message with a partition is looked for.
func BenchmarkPartitions(b *testing.B) {
	s := startProcess(b)
	for _, prefix := range []string{"BENCH.", "-"} {
		b.Run(prefix, func(b *testing.B) {
			log := openSubscriber(b, "nats://"+s.address(), natsbroker.SubscriberConfig{
				Config: natsbroker.Config{Stream: "BENCH", Prefix: prefix, Subjects: []string{"BENCH.>"}},
			})
			used, rounds := serverTime(b, s), 0
			for b.Loop() {
				rounds++
				if _, err := log.Partitions(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((serverTime(b, s)-used).Microseconds())/float64(rounds), "server-µs/op")
		})
	}
}
