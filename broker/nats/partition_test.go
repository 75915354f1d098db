package natsbroker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
)

// TestPartitionsInOrder: a stream gets subjects with partitions while publishers with and without them are in use. Its 16 partitions
// together have every message once, those of a key in order in one of them.
func TestPartitionsInOrder(t *testing.T) {
	t.Parallel()
	for _, topics := range [][]string{nil, {"order.placed", "two words"}} {
		t.Run(fmt.Sprint(topics), func(t *testing.T) {
			t.Parallel()
			testPartitionsInOrder(t, topics)
		})
	}
}

func testPartitionsInOrder(t *testing.T, topics []string) {
	s := startEmbedded(t, nil)
	conn, js := connect(t, s.address())
	stream := jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"ORDERS.>"}, AllowBatchPublish: true}
	if _, err := js.CreateStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	log, err := natsbroker.NewSubscriber(t.Context(), conn, natsbroker.SubscriberConfig{Config: natsbroker.Config{Stream: "ORDERS"}, Topics: topics})
	if err != nil {
		t.Fatal(err)
	}
	want, total := make(map[string][]string), 0 // IDs by key
	publish := func(partitioned bool) {
		p, err := natsbroker.New(t.Context(), conn, natsbroker.Config{Stream: "ORDERS", Partitioned: partitioned})
		if err != nil {
			t.Fatal(err)
		}
		var msgs []*postrider.Message
		for i := range 200 {
			m := orderOf(i)
			if topics == nil || m.Topic != "other" {
				want[m.Key] = append(want[m.Key], m.ID)
				total++
			}
			msgs = append(msgs, m)
		}
		if err := errors.Join(append(p.Publish(t.Context(), msgs), p.Close())...); err != nil {
			t.Fatal(err)
		}
	}
	publish(false)
	if parts := partitionsOf(t, log); len(parts) != 1 || parts[0].Name != "ORDERS" || !slices.Contains(parts[0].Parts, "ORDERS/15") {
		t.Fatalf("partitions are %+v, want the stream", parts)
	}
	stream.Subjects = append(stream.Subjects, "ORDERS-p.>")
	if _, err := js.UpdateStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	publish(true)
	publish(false) // and it was switched off once more
	publish(true)
	if gone, err := log.Partitions(t.Context(), "ORDERS"); err != nil || len(gone) > 0 {
		t.Errorf("the whole stream is still a partition: %+v, %v", gone, err)
	}
	for _, both := range []bool{true, false} { // the stream takes subjects of both kinds, or only has messages of both
		if !both {
			stream.Subjects = []string{"ORDERS-p.>"}
			if _, err := js.UpdateStream(t.Context(), stream); err != nil {
				t.Fatal(err)
			}
		}
		checkOrder(t, readPartitions(t, log, total, topics...), want)
		for after, wide := range map[int64]bool{0: true, 800: both} {
			if filters := filtersAfter(t, js, log, after); slices.ContainsFunc(filters, func(f string) bool { return strings.HasPrefix(f, "ORDERS.") }) != wide {
				t.Errorf("both kinds %v: a reader after %d has filters %v", both, after, filters)
			}
		}
	}
}

// orderOf returns a message of one of three topics, some without a key.
func orderOf(i int) *postrider.Message {
	m := &postrider.Message{
		ID: postrider.NewID(), Topic: []string{"order.placed", "two words", "other"}[i%3], Type: "t", Key: fmt.Sprint("key", i%40), Payload: []byte("{}"),
	}
	if i%20 == 0 {
		m.Key = ""
	}
	m.FillDefaults("test", time.Now())
	return m
}

func checkOrder(t *testing.T, got, want map[string][]string) {
	t.Helper()
	for key, ids := range want {
		if key == "" {
			slices.Sort(ids)
			slices.Sort(got[key])
		}
		if !slices.Equal(got[key], ids) {
			t.Errorf("key %q: read %v, want %v", key, got[key], ids)
		}
	}
}

// filtersAfter returns the filters that a reader of a partition has on the server.
func filtersAfter(t *testing.T, js jetstream.JetStream, log *natsbroker.Subscriber, after int64) (filters []string) {
	t.Helper()
	r, err := log.ReadLog(t.Context(), partitionsOf(t, log)[3], after)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "ORDERS")
	if err != nil {
		t.Fatal(err)
	}
	for c := range stream.ListConsumers(t.Context()).Info() {
		filters = append(filters, append(c.Config.FilterSubjects, c.Config.FilterSubject)...)
	}
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return filters
}

func partitionsOf(t *testing.T, log postrider.Log) []postrider.LogPartition {
	t.Helper()
	parts, err := log.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return parts
}

// readPartitions reads all partitions at once until there are n messages, and returns their IDs by key.
func readPartitions(t *testing.T, log *natsbroker.Subscriber, n int, topics ...string) map[string][]string {
	t.Helper()
	var mu sync.Mutex
	var readers sync.WaitGroup
	got, from := make(map[string][]string), make(map[string]string)
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	for _, part := range partitionsOf(t, log) {
		if part.Whole != "ORDERS" || !part.Shared {
			t.Fatalf("partition %+v does not say what it was", part)
		}
		readers.Go(func() {
			r, err := log.ReadLog(t.Context(), part, 0)
			if err != nil {
				t.Error(err)
				return
			}
			for last := int64(0); ; {
				out, err := r.Read(ctx, 30, 1<<20)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					if err := r.Close(t.Context()); err != nil {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				for _, d := range out {
					if d.Position.Offset <= last || d.Position.Partition != part.Name {
						t.Errorf("%+v comes after offset %d of %s", d.Position, last, part.Name)
					}
					if last = d.Position.Offset; d.Message == nil {
						continue
					}
					if m := d.Message; (m.Topic == "other" && topics != nil) || m.Key != "" && from[m.Key] != "" && from[m.Key] != part.Name {
						t.Errorf("message %+v is in %s; its key was in %s", m, part.Name, from[m.Key])
					}
					from[d.Message.Key] = part.Name
					got[d.Message.Key] = append(got[d.Message.Key], d.Message.ID)
					if n--; n == 0 {
						enough()
					}
				}
				mu.Unlock()
				at := out[len(out)-1].Position
				if state, err := log.VerifyPosition(t.Context(), at); err != nil || state != postrider.PositionKept {
					t.Errorf("%+v is %v, %v; want kept", at, state, err)
				}
			}
		})
	}
	readers.Wait()
	return got
}

// TestPartitionedStream: what does not fit together is refused, with the command or the setting that helps.
func TestPartitionedStream(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	conn, js := connect(t, s.address())
	publisher := func(cfg natsbroker.Config) error {
		p, err := natsbroker.New(t.Context(), conn, cfg)
		if err == nil {
			err = p.Close()
		}
		return err
	}
	queue := func() error {
		sub, err := natsbroker.NewSubscriber(t.Context(), conn, natsbroker.SubscriberConfig{Config: natsbroker.Config{Stream: "OLD"}, Durable: "view"})
		if err != nil {
			return err
		}
		in, err := sub.Subscribe(t.Context())
		if err != nil {
			return err
		}
		return in.Close(t.Context())
	}
	fails := func(what string, err error, text string) {
		t.Helper()
		if (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want %q", what, err, text)
		}
	}
	fails("a stream of its own", publisher(natsbroker.Config{Stream: "OLD"}), "")
	fails("read as a queue", queue(), "")
	fails("a stream that takes no partitions", publisher(natsbroker.Config{Stream: "OLD", Partitioned: true}),
		"run: nats stream edit OLD --subjects=OLD.>,OLD-p.>")
	fails("no prefix", publisher(natsbroker.Config{Stream: "NEW", Partitioned: true, Prefix: "-", Subjects: []string{"a.>"}}), "set Prefix")
	fails("other subjects", publisher(natsbroker.Config{Stream: "NEW", Partitioned: true, Subjects: []string{"NEW.>"}}), "add NEW-p.>")
	fails("a new stream", publisher(natsbroker.Config{Stream: "NEW", Partitioned: true}), "")
	fails("without partitions", publisher(natsbroker.Config{Stream: "NEW"}), "(Partitioned is not set); run: nats stream edit NEW --subjects=NEW-p.>,NEW.>")

	stream, err := js.Stream(t.Context(), "OLD")
	if err == nil {
		cfg := stream.CachedInfo().Config
		cfg.Subjects = []string{"OLD.>", "OLD-p.>"}
		_, err = js.UpdateStream(t.Context(), cfg)
	}
	if err != nil {
		t.Fatal(err)
	}
	fails("with partitions", publisher(natsbroker.Config{Stream: "OLD", Partitioned: true}), "run: nats consumer edit OLD view ")
	fails("without them", publisher(natsbroker.Config{Stream: "OLD"}), "")
	fails("a durable consumer that would miss them", queue(), "run: nats consumer edit OLD view --filter=OLD-p.*.> --filter=OLD.>")
}
