package natsbroker_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	natsbroker "github.com/postrider/postrider/broker/nats"
)

// TestPartitionsByWildcard: a stream that takes both kinds of subjects by one wildcard takes no publisher with partitions. If it has
// messages of such a publisher all the same, they are read.
func TestPartitionsByWildcard(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	conn, js := connect(t, s.address())
	stream := jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"shop.>", "other"}}
	if _, err := js.CreateStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	cfg := natsbroker.Config{Stream: "SHOP", Prefix: "shop.orders."}
	log := openLog(t, conn, cfg)
	if parts := partitionsOf(t, log); len(parts) != 1 {
		t.Fatalf("partitions are %+v, want the stream", parts)
	}
	divided := cfg
	divided.Partitioned = true
	_, err := natsbroker.New(t.Context(), conn, divided)
	wantError(t, err, "run: nats stream edit SHOP --subjects=other,shop.orders.>,shop.orders-p.>")
	stream.Subjects = []string{"other", "shop.orders.>", "shop.orders-p.>"}
	if _, err := js.UpdateStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	publishAndClose(t, conn, divided)
	stream.Subjects = []string{"shop.>"}
	if _, err := js.UpdateStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	if parts := partitionsOf(t, log); len(parts) != 16 {
		t.Errorf("a stream with a message that has a partition is not read in partitions: %+v", parts)
	}
}

// TestPartitionsOfMirror: a mirror is read in partitions once it has messages with a partition, although it has no subjects.
func TestPartitionsOfMirror(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	conn, js := connect(t, s.address())
	publishAndClose(t, conn, natsbroker.Config{Stream: "ORDERS", Partitioned: true})
	mirror, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "COPY", Mirror: &jetstream.StreamSource{Name: "ORDERS"}})
	if err != nil {
		t.Fatal(err)
	}
	awaitMessages(t, mirror, 1)
	log := openLog(t, conn, natsbroker.Config{Stream: "COPY", Prefix: "ORDERS."})
	if parts := partitionsOf(t, log); len(parts) != 16 {
		t.Errorf("a mirror with a message that has a partition is not read in partitions: %+v", parts)
	}
}

func openLog(t *testing.T, conn *nats.Conn, cfg natsbroker.Config) *natsbroker.Subscriber {
	t.Helper()
	log, err := natsbroker.NewSubscriber(t.Context(), conn, natsbroker.SubscriberConfig{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// publishAndClose publishes one message with a publisher of its own, and returns its ID.
func publishAndClose(t *testing.T, conn *nats.Conn, cfg natsbroker.Config) string {
	t.Helper()
	p, err := natsbroker.New(t.Context(), conn, cfg)
	if err != nil {
		t.Fatal(err)
	}
	id := publishTo(t, p, "order.placed")
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return id
}

func awaitMessages(t *testing.T, stream jetstream.Stream, n uint64) {
	t.Helper()
	for {
		info, err := stream.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.State.Msgs >= n {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("the stream does not get its messages")
		}
	}
}

// TestPartitionsWayBack: when subjects with a partition are removed from a stream, its messages with one are still read.
func TestPartitionsWayBack(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	conn, js := connect(t, s.address())
	stream := jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"ORDERS.>", "ORDERS-p.>"}}
	if _, err := js.CreateStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	want := []string{publishAndClose(t, conn, natsbroker.Config{Stream: "ORDERS", Partitioned: true})}
	stream.Subjects = stream.Subjects[:1]
	if _, err := js.UpdateStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	want = append(want, publishAndClose(t, conn, natsbroker.Config{Stream: "ORDERS"}))
	log := openLog(t, conn, natsbroker.Config{Stream: "ORDERS"})
	if parts := partitionsOf(t, log); len(parts) != 16 {
		t.Fatalf("partitions are %+v, want 16 while the stream has a message with one", parts)
	}
	checkOrder(t, readPartitions(t, log, 2), map[string][]string{"k": want})
	queue, err := natsbroker.NewSubscriber(t.Context(), conn, natsbroker.SubscriberConfig{Config: natsbroker.Config{Stream: "ORDERS"}, Durable: "view"})
	if err != nil {
		t.Fatal(err)
	}
	checkQueue := func(n int) {
		t.Helper()
		in, err := queue.Subscribe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for got := 0; got < n; {
			out, err := in.Receive(t.Context(), 10)
			if err != nil {
				t.Fatal(err)
			}
			got += len(out)
		}
		if err := in.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	checkQueue(2)
	purge(t, s.address(), "ORDERS", 1)
	checkQueue(0) // it still may read both
	if parts := partitionsOf(t, log); len(parts) != 1 {
		t.Errorf("partitions are %+v, want the stream, which has no message with one any more", parts)
	}
}

// TestPartitionsNoticed: a reader ends before its position passes messages that it does not get, because the stream takes other subjects
// than when it was opened.
func TestPartitionsNoticed(t *testing.T) {
	t.Parallel()
	for _, divided := range []bool{false, true} { // what the reader was opened for
		s := startEmbedded(t, nil)
		conn, js := connect(t, s.address())
		subjects := map[bool]string{false: "ORDERS.>", true: "ORDERS-p.>"}
		stream := jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{subjects[divided]}}
		if _, err := js.CreateStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
		log := openLog(t, conn, natsbroker.Config{Stream: "ORDERS"})
		r, err := log.ReadLog(t.Context(), partitionsOf(t, log)[0], 0)
		if err != nil {
			t.Fatal(err)
		}
		stream.Subjects = []string{"ORDERS.>", "ORDERS-p.>"}
		if _, err := js.UpdateStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
		publishAndClose(t, conn, natsbroker.Config{Stream: "ORDERS", Partitioned: !divided})
		out, err := r.Read(t.Context(), 10, 1<<20) // ends with the next heartbeat
		if err == nil {
			t.Errorf("divided %v: read %+v, want an error", divided, out[0])
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
