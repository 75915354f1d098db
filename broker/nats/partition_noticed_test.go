package natsbroker_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
)

// TestPartitionsNoticedWhileReading: a reader of a set that returns one message after another looks at the stream's subjects from time to time,
// before it returns messages that could overtake those without a partition.
func TestPartitionsNoticedWhileReading(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	conn, js := connect(t, s.address())
	stream := jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"ORDERS-p.>"}}
	if _, err := js.CreateStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	divided := natsbroker.Config{Stream: "ORDERS", Partitioned: true}
	log := openLog(t, conn, natsbroker.Config{Stream: "ORDERS"})
	r, err := log.ReadLog(t.Context(), partitionsOf(t, log)[setOfK], 0)
	if err != nil {
		t.Fatal(err)
	}
	publishAndClose(t, conn, divided)
	if out, err := r.Read(t.Context(), 10, 1<<20); err != nil || out[0].Message == nil {
		t.Fatalf("read %+v, %v; want the first message", out, err)
	}
	stream.Subjects = []string{"ORDERS.>", "ORDERS-p.>"}
	if _, err := js.UpdateStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	natsbroker.LookEvery(log, time.Hour)
	second := publishAndClose(t, conn, divided)
	if out, err := r.Read(t.Context(), 10, 1<<20); err != nil || out[0].Message == nil || out[0].Message.ID != second {
		t.Fatalf("read %+v, %v; want the second message, because the reader has just looked", out, err)
	}
	natsbroker.LookEvery(log, 0)
	publishAndClose(t, conn, natsbroker.Config{Stream: "ORDERS"})
	publishAndClose(t, conn, divided)
	if out, err := r.Read(t.Context(), 10, 1<<20); err == nil || !strings.Contains(err.Error(), "without a partition again") {
		t.Errorf("read %+v, %v; want an error before the fourth message, which the reader would return without the third", out, err)
	}
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// setOfK is the number of the set of the key "k".
const setOfK = 6

// TestPartitionsNoticedByQueue: a durable consumer that is open while its stream gets subjects with partitions stops, says what to do, and
// goes on by itself once its filters cover them.
func TestPartitionsNoticedByQueue(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	conn, js := connect(t, s.address())
	plain := natsbroker.Config{Stream: "ORDERS"}
	want := []string{publishAndClose(t, conn, plain)}
	queue, err := natsbroker.NewSubscriber(t.Context(), conn, natsbroker.SubscriberConfig{Config: plain, Durable: "view"})
	if err != nil {
		t.Fatal(err)
	}
	natsbroker.LookEvery(queue, 50*time.Millisecond)
	sub, err := queue.Subscribe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range receive(t, sub, 1) {
		if err := d.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := js.Stream(t.Context(), "ORDERS")
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.Subjects = []string{"ORDERS.>", "ORDERS-p.>"}
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if out, err := sub.Receive(ctx, 10); err == nil || !strings.Contains(err.Error(), "run: nats consumer edit ORDERS view --filter=ORDERS-p.*.> --filter=ORDERS.>") {
		t.Fatalf("received %+v, %v; want the command", out, err)
	}
	consumer, err := stream.Consumer(t.Context(), "view")
	if err != nil {
		t.Fatal(err)
	}
	group := consumer.CachedInfo().Config
	group.FilterSubject, group.FilterSubjects = "", []string{"ORDERS-p.*.>", "ORDERS.>"}
	if _, err := stream.UpdateConsumer(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	want = append(want, publishAndClose(t, conn, natsbroker.Config{Stream: "ORDERS", Partitioned: true}))
	if got := receive(t, sub, 1); got[0].Message.ID != want[1] {
		t.Errorf("received %+v, want %s", got[0].Message, want[1])
	}
	if err := sub.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLagOfPartitions: the consumers that show the lag are those of the stream as it is read now.
func TestLagOfPartitions(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	conn, js := connect(t, s.address())
	plain := natsbroker.Config{Stream: "ORDERS"}
	publishAndClose(t, conn, plain)
	log := openLog(t, conn, plain)
	stream, err := js.Stream(t.Context(), "ORDERS")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ partitions, want []string }{
		{[]string{"ORDERS"}, []string{"postrider-billing"}},
		{[]string{"ORDERS/3", "ORDERS/15"}, []string{"postrider-billing-15", "postrider-billing-3"}},
		{[]string{"ORDERS"}, []string{"postrider-billing"}},
	} {
		for _, partition := range step.partitions {
			if err := log.ReportPosition(t.Context(), "billing", postrider.Position{Partition: partition, Offset: 1}); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for name := range stream.ConsumerNames(t.Context()).Name() {
			got = append(got, name)
		}
		if slices.Sort(got); !slices.Equal(got, step.want) {
			t.Errorf("after a report of %v, consumers are %v, want %v", step.partitions, got, step.want)
		}
	}
}
