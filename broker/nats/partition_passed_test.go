package natsbroker_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
)

// TestPartitionsNotPassed: a stream is divided while a durable consumer reads the old subjects only. The server does not deliver what such a
// consumer has passed, so the publisher does not begin before the consumer can read everything.
func TestPartitionsNotPassed(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	conn, js := connect(t, s.address())
	plain, divided := natsbroker.Config{Stream: "ORDERS"}, natsbroker.Config{Stream: "ORDERS", Partitioned: true}
	publishAndClose(t, conn, plain)
	queue, err := natsbroker.NewSubscriber(t.Context(), conn, natsbroker.SubscriberConfig{Config: plain, Durable: "view"})
	if err != nil {
		t.Fatal(err)
	}
	sub, err := queue.Subscribe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close(t.Context())
	receiveAndAck(t, sub)
	log := openLog(t, conn, plain) // its consumers, with and without a name, are in nobody's way
	reader, err := log.ReadLog(t.Context(), partitionsOf(t, log)[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close(t.Context())
	if err := log.ReportPosition(t.Context(), "billing", postrider.Position{Partition: "ORDERS", Offset: 1}); err != nil {
		t.Fatal(err)
	}
	stream := divide(t, js)

	var want []string
	if p, err := natsbroker.New(t.Context(), conn, divided); err == nil { // it would begin, and publish at once
		want = append(want, publishTo(t, p, "order.placed"))
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		t.Error("a publisher with Partitioned began before the consumer was changed")
	} else {
		wantError(t, err, "consumer view", "run: nats consumer edit ORDERS view --filter=ORDERS-p.*.> --filter=ORDERS.>")
	}
	publishAndClose(t, conn, plain)
	receiveAndAck(t, sub) // the consumer is now past everything

	editFilters(t, stream, "view", "ORDERS-p.*.>", "ORDERS.>")
	want = append(want, publishAndClose(t, conn, divided))
	for _, id := range want {
		if got := receiveAndAck(t, sub); got != id {
			t.Errorf("received %s, want %s", got, id)
		}
	}
}

// TestPartitionsOfOthersNotPassed: consumers of other programs, with filters of their own.
func TestPartitionsOfOthersNotPassed(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	conn, js := connect(t, s.address())
	divided := natsbroker.Config{Stream: "ORDERS", Partitioned: true}
	publishAndClose(t, conn, natsbroker.Config{Stream: "ORDERS"})
	stream := divide(t, js)
	for name, filters := range map[string][]string{
		"all": nil, "both": {"ORDERS.a", "ORDERS.b", "ORDERS-p.*.*.a", "ORDERS-p.*.*.b"}, "new": {"ORDERS-p.>"},
		"half": {"ORDERS.a", "ORDERS.b", "ORDERS-p.*.*.a"},
	} {
		cfg := jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy, FilterSubjects: filters}
		if _, err := stream.CreateConsumer(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	_, err := natsbroker.New(t.Context(), conn, divided)
	const want = "nats: consumer half of stream ORDERS reads ORDERS-p.*.*.a, ORDERS.a, ORDERS.b and would lose messages with a partition; " +
		"run: nats consumer edit ORDERS half --filter=ORDERS-p.*.*.b --filter=ORDERS-p.*.*.a --filter=ORDERS.a --filter=ORDERS.b (or remove it)"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	cfg := stream.CachedInfo().Config
	cfg.Subjects = []string{"ORDERS-p.>"} // no message without a partition comes any more, so none is passed
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	publishAndClose(t, conn, divided)
}

// TestPartitionsNotPassedByWildcards: filters with a wildcard in place of the prefix.
func TestPartitionsNotPassedByWildcards(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	conn, js := connect(t, s.address())
	plain, divided := natsbroker.Config{Stream: "ORDERS"}, natsbroker.Config{Stream: "ORDERS", Partitioned: true}
	publishAndClose(t, conn, plain)
	stream := divide(t, js)
	for name, filter := range map[string]string{"all": "*.>", "other": "*.a", "deep": "*.*.*.order.placed"} {
		cfg := jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: filter}
		if _, err := stream.CreateConsumer(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	_, err := natsbroker.New(t.Context(), conn, divided)
	wantError(t, err, "consumer other of stream", "run: nats consumer edit ORDERS other --filter=ORDERS-p.*.*.a --filter=*.a (or",
		"--filter=ORDERS-p.*.*.*.*.order.placed --filter=*.*.*.order.placed")
	if strings.Contains(err.Error(), "consumer all") {
		t.Errorf("names a consumer that reads everything: %s", err)
	}
	editFilters(t, stream, "other", "ORDERS-p.*.*.a", "*.a")
	editFilters(t, stream, "deep", "ORDERS-p.*.*.*.*.order.placed", "*.*.*.order.placed")
	publishAndClose(t, conn, divided)
}

// TestPartitionsNotPassedNeedsPermission: without the permission to look, a publisher with Partitioned does not begin.
func TestPartitionsNotPassedNeedsPermission(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, func(o *server.Options) {
		user := func(name string, allow ...string) *server.User {
			return &server.User{Username: name, Password: "secret", Permissions: &server.Permissions{
				Publish:   &server.SubjectPermission{Allow: append(allow, "ORDERS-p.>", "$JS.API.STREAM.INFO.ORDERS")},
				Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
			}}
		}
		o.Users = []*server.User{user("may", "$JS.API.CONSUMER.LIST.ORDERS"), user("not"), user("admin", ">")}
	})
	admin, js := connect(t, "nats://admin:secret@"+s.address())
	publishAndClose(t, admin, natsbroker.Config{Stream: "ORDERS"})
	divide(t, js)
	divided := natsbroker.Config{Stream: "ORDERS", Partitioned: true, CheckOnly: true}
	may, _ := connect(t, "nats://may:secret@"+s.address())
	publishAndClose(t, may, divided)
	not, _ := connect(t, "nats://not:secret@"+s.address(), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	divided.PublishTimeout = 1
	_, err := natsbroker.New(t.Context(), not, divided)
	wantError(t, err, "may publish to $JS.API.CONSUMER.LIST.ORDERS")
}

// divide lets the stream take subjects with partitions too.
func divide(t *testing.T, js jetstream.JetStream) jetstream.Stream {
	t.Helper()
	stream, err := js.Stream(t.Context(), "ORDERS")
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.Subjects = []string{"ORDERS.>", "ORDERS-p.>"}
	if stream, err = js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	return stream
}

func editFilters(t *testing.T, stream jetstream.Stream, name string, filters ...string) {
	t.Helper()
	consumer, err := stream.Consumer(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := consumer.CachedInfo().Config
	cfg.FilterSubject, cfg.FilterSubjects = "", filters
	if _, err := stream.UpdateConsumer(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// receiveAndAck receives one message and returns its ID.
func receiveAndAck(t *testing.T, sub postrider.Subscription) string {
	t.Helper()
	d := receive(t, sub, 1)[0]
	if err := d.Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d.Message.ID
}
