package natsbroker_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
)

func subscribe(t *testing.T, url string, cfg natsbroker.SubscriberConfig) postrider.Subscription {
	t.Helper()
	sub, err := openSubscriber(t, url, cfg).Subscribe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sub.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return sub
}

// receive returns n deliveries.
func receive(t *testing.T, sub postrider.Subscription, n int) []*postrider.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all []*postrider.Delivery
	for len(all) < n {
		got, err := sub.Receive(ctx, n-len(all))
		if err != nil && postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable {
			t.Fatal(err)
		}
		all = append(all, got...)
	}
	return all
}

func TestParseSubscriberURL(t *testing.T) {
	t.Parallel()
	servers, cfg, err := natsbroker.ParseSubscriberURL("nats://a:4222?stream=ORDERS&durable=view&topics=a,b&ordered=true&max_ack_pending=1"+
		"&ack_wait=10s&confirm_acks=true&publish_timeout=2s", natsbroker.SubscriberConfig{})
	if err != nil {
		t.Fatal(err)
	}
	want := natsbroker.SubscriberConfig{
		Config: natsbroker.Config{Stream: "ORDERS", PublishTimeout: 2 * time.Second}, Durable: "view", Topics: []string{"a", "b"}, Ordered: true,
		MaxAckPending: 1, AckWait: 10 * time.Second, ConfirmAcks: true,
	}
	if servers != "nats://a:4222" || !reflect.DeepEqual(cfg, want) {
		t.Errorf("got %s and %+v, want %+v", servers, cfg, want)
	}
	_, _, err = natsbroker.ParseURL("nats://a?durable=view", natsbroker.Config{})
	wantError(t, err, `unknown URL option "durable"`)
	_, _, err = natsbroker.ParseSubscriberURL("nats://a?ordered=perhaps&durible=x", natsbroker.SubscriberConfig{})
	wantError(t, err, `ordered: "perhaps" is neither true nor false`, `unknown URL option "durible"`, "known are ack_wait, allow_plaintext, ca,")
}

// TestSubscriberConfigFaults checks that all errors are reported at once.
func TestSubscriberConfigFaults(t *testing.T) {
	t.Parallel()
	_, err := natsbroker.OpenSubscriber(t.Context(), "nats://127.0.0.1:1", natsbroker.SubscriberConfig{
		Topics: []string{""}, Ordered: true, MaxAckPending: 7, AckWait: time.Millisecond,
	})
	wantError(t, err, "no stream is named", "are of a durable consumer", "a topic is empty", "7 unsettled messages in order", "within 1ms")
	_, err = natsbroker.OpenSubscriber(t.Context(), "nats://127.0.0.1:1", natsbroker.SubscriberConfig{Durable: "a b", MaxAckPending: -1})
	wantError(t, err, `durable "a b"`, "-1 unsettled messages")
}

// TestConsumerCreated checks the configuration of a created consumer, and that a second member finds it.
func TestConsumerCreated(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	url := "nats://" + s.address() + "?stream=ORDERS&durable=view&topics=placed,paid&ack_wait=7s"
	for range 2 {
		subscribe(t, url, natsbroker.SubscriberConfig{})
	}
	_, js := connect(t, s.address())
	consumer, err := js.Consumer(t.Context(), "ORDERS", "view")
	if err != nil {
		t.Fatal(err)
	}
	got := consumer.CachedInfo().Config
	if got.Durable != "view" || got.AckPolicy != jetstream.AckExplicitPolicy || got.AckWait != 7*time.Second || got.MaxDeliver != -1 ||
		got.MaxAckPending != natsbroker.DefaultMaxAckPending || got.DeliverPolicy != jetstream.DeliverAllPolicy ||
		!reflect.DeepEqual(got.FilterSubjects, []string{"ORDERS.placed", "ORDERS.paid"}) {
		t.Errorf("consumer is %+v", got)
	}
}

// TestConsumerDoesNotFit checks that all differences are reported at once, with the commands to fix them.
func TestConsumerDoesNotFit(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	_, js := connect(t, s.address())
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"ORDERS.>"}, MaxAge: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{
		Durable: "view", AckPolicy: jetstream.AckAllPolicy, MaxDeliver: 5, BackOff: []time.Duration{time.Second, 2 * time.Second},
		FilterSubject: "ORDERS.paid", HeadersOnly: true, MaxRequestBatch: 10,
	}); err != nil {
		t.Fatal(err)
	}
	refused := func(cfg natsbroker.SubscriberConfig, parts ...string) {
		t.Helper()
		cfg.Stream = "ORDERS"
		sub := openSubscriber(t, "nats://"+s.address(), cfg)
		if c := sub.Capabilities(); c.RedeliveryWindow != time.Hour {
			t.Errorf("redelivery window is %s, want the stream's max age", c.RedeliveryWindow)
		}
		_, err := sub.Subscribe(t.Context())
		if postrider.OutcomeOf(err).Kind == postrider.BrokerUnavailable {
			t.Errorf("error %v says that the broker is unavailable", err)
		}
		wantError(t, err, parts...)
	}
	refused(natsbroker.SubscriberConfig{Durable: "view", Ordered: true}, "has ack policy", "name another durable consumer",
		"gives messages up after 5 deliveries", "nats consumer edit ORDERS view --max-deliver=-1", "has a backoff",
		"waits 1s for a settlement (ack wait); 30s are asked for; run: nats consumer edit ORDERS view --wait=30s",
		"nats consumer edit ORDERS view --max-pending=1", "reads ORDERS.paid (filter subjects); ORDERS.> is asked for", "headers without payloads",
		"limits pull requests (max batch 10, max expires 0s)")
	refused(natsbroker.SubscriberConfig{Durable: "absent", Config: natsbroker.Config{CheckOnly: true}}, "stream ORDERS has no consumer absent",
		"nats consumer add ORDERS absent --pull --deliver=all --ack=explicit --wait=30s --max-pending=1024 --max-deliver=-1 --filter=ORDERS.>")
}

// TestConsumerDeleted deletes the consumer while one member reads and another does not.
func TestConsumerDeleted(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	url := "nats://" + s.address() + "?stream=ORDERS"
	sub := subscribe(t, url+"&durable=view", natsbroker.SubscriberConfig{})
	p := open(t, url, natsbroker.Config{})
	_, js := connect(t, s.address())
	remove := func() {
		t.Helper()
		if err := js.DeleteConsumer(t.Context(), "ORDERS", "view"); err != nil {
			t.Fatal(err)
		}
	}
	msgs := numbered("placed", "a", 3)
	if errs := p.Publish(t.Context(), msgs[:2]); errs != nil {
		t.Fatal(errs)
	}
	first := receive(t, sub, 2)
	remove()
	again := receive(t, sub, 1)[0] // while nobody was receiving
	if again.Message.ID != msgs[0].ID {
		t.Errorf("message %s came, want everything from the beginning", again.Message.ID)
	}
	for _, d := range first {
		<-d.Lost()
	}
	waiting := make(chan []*postrider.Delivery)
	go func() { waiting <- receive(t, sub, 2) }()
	remove()
	if errs := p.Publish(t.Context(), msgs[2:]); errs != nil {
		t.Fatal(errs)
	}
	if got := <-waiting; len(got) != 2 {
		t.Errorf("%d messages came", len(got))
	}
}

// TestOrderedDeliveryHeldUp: the network delays a message to a member. The server counts from when it sent the message,
// and delivers it to the other member; the first one must treat it as lost.
func TestOrderedDeliveryHeldUp(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	link := newProxy(t, s.address())
	const query = "?stream=ORDERS&durable=view&ordered=true&ack_wait=3s"
	p := open(t, "nats://"+s.address()+"?stream=ORDERS", natsbroker.Config{})
	first := subscribe(t, link.url()+query, natsbroker.SubscriberConfig{})
	other := subscribe(t, "nats://"+s.address()+query, natsbroker.SubscriberConfig{})
	_, js := connect(t, s.address())
	late := make(chan *postrider.Delivery, 1)
	ctx, cancel := context.WithCancel(t.Context())
	received := make(chan struct{})
	go func() {
		defer close(received)
		if got, err := first.Receive(ctx, 1); err == nil {
			late <- got[0]
		}
	}()
	await(t, "the pull request of the first member", func() bool {
		consumer, err := js.Consumer(t.Context(), "ORDERS", "view")
		return err == nil && consumer.CachedInfo().NumWaiting > 0
	})
	link.Pause()
	if errs := p.Publish(t.Context(), numbered("orders", "a", 1)); errs != nil {
		t.Fatal(errs)
	}
	time.AfterFunc(2*time.Second, link.Resume)
	again := receive(t, other, 1)[0]
	select {
	case d := <-late:
		select {
		case <-d.Lost():
		default:
			t.Errorf("delivery %d of message %s is not lost when delivery %d comes", d.Deliveries, d.Message.ID, again.Deliveries)
		}
	default: // it arrived too late to be delivered
	}
	if err := again.Ack(t.Context()); err != nil {
		t.Error(err)
	}
	cancel()
	<-received
}

// TestForeignEvent reads a CloudEvent that another program published.
func TestForeignEvent(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	sub := subscribe(t, "nats://"+s.address()+"?stream=ORDERS&durable=view", natsbroker.SubscriberConfig{})
	conn, _ := connect(t, s.address())
	if err := conn.PublishMsg(&nats.Msg{Subject: "ORDERS.two%20words", Data: []byte("{}"), Header: nats.Header{
		"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-type": {"placed"}, "ce-source": {"/else"},
	}}); err != nil {
		t.Fatal(err)
	}
	d := receive(t, sub, 1)[0]
	if d.Err != nil || d.Message.ID != "1" || d.Message.Topic != "two words" || d.Raw != nil {
		t.Errorf("delivery is %+v with message %+v", d, d.Message)
	}
}

// TestReadsMirror reads a mirror stream, which accepts no messages itself.
func TestReadsMirror(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	p := open(t, "nats://"+s.address()+"?stream=ORDERS", natsbroker.Config{})
	_, js := connect(t, s.address())
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "COPY", Mirror: &jetstream.StreamSource{Name: "ORDERS"}}); err != nil {
		t.Fatal(err)
	}
	sub := subscribe(t, "nats://"+s.address()+"?stream=COPY&prefix=ORDERS.&durable=view", natsbroker.SubscriberConfig{})
	if errs := p.Publish(t.Context(), numbered("placed", "a", 1)); errs != nil {
		t.Fatal(errs)
	}
	if d := receive(t, sub, 1)[0]; d.Position.Partition != "COPY" || d.Message.Topic != "placed" {
		t.Errorf("delivery at %+v of topic %s", d.Position, d.Message.Topic)
	}
}

// TestReaderRights reads as a user with exactly the documented permissions.
func TestReaderRights(t *testing.T) {
	t.Parallel()
	rights := &server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{
			"$JS.API.STREAM.INFO.ORDERS", "$JS.API.STREAM.CREATE.ORDERS", "$JS.API.CONSUMER.INFO.ORDERS.billing",
			"$JS.API.CONSUMER.CREATE.ORDERS.billing", "$JS.API.CONSUMER.CREATE.ORDERS.billing.>",
			"$JS.API.CONSUMER.MSG.NEXT.ORDERS.billing", "$JS.ACK.ORDERS.billing.>",
			"$JS.API.STREAM.MSG.GET.ORDERS",
		}},
		Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
	}
	s := startEmbedded(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "admin", Password: "a"}, {Username: "reader", Password: "r", Permissions: rights}}
	})
	for _, topics := range []string{"placed", "placed,paid"} {
		url := "nats://reader:r@" + s.address() + "?stream=ORDERS&durable=billing&confirm_acks=true&topics=" + topics
		sub := subscribe(t, url, natsbroker.SubscriberConfig{})
		p := open(t, "nats://admin:a@"+s.address()+"?stream=ORDERS", natsbroker.Config{})
		if errs := p.Publish(t.Context(), numbered("placed", topics, 1)); errs != nil {
			t.Fatal(errs)
		}
		d := receive(t, sub, 1)[0]
		if err := d.Ack(t.Context()); err != nil {
			t.Error(err)
		}
		_, js := connect(t, s.address(), nats.UserInfo("admin", "a"))
		reader := openSubscriber(t, url, natsbroker.SubscriberConfig{})
		verify := func(want postrider.PositionState) {
			t.Helper()
			if state, err := reader.VerifyPosition(t.Context(), d.Position); err != nil || state != want {
				t.Errorf("state %v, error %v, want %v", state, err, want)
			}
		}
		verify(postrider.PositionKept)
		stream, err := js.Stream(t.Context(), "ORDERS")
		if err == nil {
			err = stream.Purge(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		verify(postrider.PositionRemoved)
		if err := js.DeleteConsumer(t.Context(), "ORDERS", "billing"); err != nil {
			t.Fatal(err)
		}
	}
}
