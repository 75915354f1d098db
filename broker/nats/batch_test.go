package natsbroker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
)

// batchBundle is a publisher behind a proxy, with its own server.
type batchBundle struct {
	server *embeddedServer
	faults *proxy
	p      *natsbroker.Publisher
}

func setupBatches(t *testing.T, cfg natsbroker.Config, set func(*server.Options)) *batchBundle {
	t.Helper()
	s := startEmbedded(t, set)
	faults := newProxy(t, s.address())
	cfg.Stream = "ORDERS"
	cfg.Options = []nats.Option{nats.CustomReconnectDelay(func(int) time.Duration { return 10 * time.Millisecond })}
	return &batchBundle{server: s, faults: faults, p: open(t, faults.url(), cfg)}
}

// check checks that the stream has exactly the messages of a topic, each once and in order.
func (b *batchBundle) check(t *testing.T, topic string, want []*postrider.Message) {
	t.Helper()
	got := arrived(t, b.server.address(), "ORDERS", topic)
	if !slices.EqualFunc(got, want, func(g, w *postrider.Message) bool { return g.ID == w.ID }) {
		var ids []string
		for _, m := range got {
			ids = append(ids, m.ID)
		}
		t.Errorf("the stream has %d messages, want %d in order: %.2000v", len(got), len(want), ids)
	}
}

// operation returns the number and the operation of a batch message; 0 if it is not one.
func operation(reply string) (number int, op string) {
	if batchOf(reply) == "" {
		return 0, ""
	}
	fields := strings.Split(reply, ".")
	_, _ = fmt.Sscan(fields[len(fields)-3], &number)
	return number, fields[len(fields)-2]
}

const opEnd = "3"

// once returns a function that returns true until it is called with a match, and returns false for the first match only.
func once(matches func(reply string) bool) func(reply string) bool {
	var done atomic.Bool
	return func(reply string) bool {
		return !matches(reply) || done.Swap(true)
	}
}

// TestBatchAnswers counts answers to check that batches are used where they are allowed.
func TestBatchAnswers(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	createStream(t, s.address(), "SINGLE", false)
	for stream, want := range map[string]bool{"SINGLE": false, "CREATED": true} {
		conn, _ := connect(t, s.address())
		p, err := natsbroker.New(t.Context(), conn, natsbroker.Config{Stream: stream})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		publish := func(topic string) (answers uint64) {
			before := conn.Stats().InMsgs
			if errs := p.Publish(t.Context(), numbered(topic, "a", 100)); errs != nil {
				t.Fatal(errs[0])
			}
			return conn.Stats().InMsgs - before
		}
		if n := publish("orders"); n < 100 != want {
			t.Errorf("stream %s gave %d answers to 100 messages", stream, n)
		}
		// Changes of the stream are noticed.
		_, js := connect(t, s.address())
		cfg := jetstream.StreamConfig{Name: stream, Subjects: []string{stream + ".>"}, Duplicates: 2 * time.Minute, AllowBatchPublish: !want}
		if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		publish("changed")
		natsbroker.LookAgain(p)
		if n := publish("seen"); n < 100 == want {
			t.Errorf("stream %s gave %d answers to 100 messages, after it was changed", stream, n)
		}
	}
}

// TestBatchWindow: calls that are larger than the window, alone and concurrent, complete without waiting for
// PublishTimeout.
func TestBatchWindow(t *testing.T) {
	t.Parallel()
	for _, window := range []int{1, 2, 7, 64} {
		t.Run(fmt.Sprint(window), func(t *testing.T) {
			t.Parallel()
			b := setupBatches(t, natsbroker.Config{MaxInFlight: window, PublishTimeout: time.Minute}, nil)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
			defer cancel()
			var calls sync.WaitGroup
			for c := range 6 {
				calls.Go(func() {
					topic := fmt.Sprintf("orders.%d", c)
					msgs := numbered(topic, "a", 200)
					if errs := b.p.Publish(ctx, msgs); errs != nil {
						t.Errorf("errors = %.300v", errs)
					}
					b.check(t, topic, msgs)
				})
			}
			calls.Wait()
		})
	}
}

// TestBatchRefusedAmongMany: after a rejected message, all messages of other keys are sent, including those that did not
// fit into the window at first.
func TestBatchRefusedAmongMany(t *testing.T) {
	t.Parallel()
	b := setupBatches(t, natsbroker.Config{MaxInFlight: 50}, nil)
	refused, fine := numbered("refused", "a", 50), numbered("fine", "b", 50)
	var msgs []*postrider.Message
	for i := range refused {
		msgs = append(msgs, refused[i], fine[i])
	}
	b.faults.mark(b.faults.refuse, 1)(refused[20].ID)
	errs := b.p.Publish(t.Context(), msgs)
	for i, m := range msgs {
		switch {
		case m.Key == "b" || i < 40:
			if errs[i] != nil {
				t.Errorf("message %s: %v", m.ID, errs[i])
			}
		case i == 40:
			wantOutcome(t, errs[i], postrider.Retried, "refused by the test")
		default:
			wantOutcome(t, errs[i], postrider.Retried, postrider.ErrPredecessorFailed.Error())
		}
	}
	b.check(t, "fine", fine)
	b.check(t, "refused", refused[:20])
	deliver(t, b.p, refused[20:])
	b.check(t, "refused", refused)
}

// TestBatchLimit: if the server accepts no more batches, messages are sent one by one.
func TestBatchLimit(t *testing.T) {
	t.Parallel()
	b := setupBatches(t, natsbroker.Config{}, func(o *server.Options) { o.JetStreamLimits.MaxBatchInflightPerStream = 1 })
	var calls sync.WaitGroup
	for c := range 8 {
		calls.Go(func() {
			topic := fmt.Sprintf("orders.%d", c)
			msgs := numbered(topic, "a", 300)
			if errs := b.p.Publish(t.Context(), msgs); errs != nil {
				t.Errorf("errors = %.300v", errs)
			}
			b.check(t, topic, msgs)
		})
	}
	calls.Wait()
}

// TestBatchDropped: if the server has dropped a batch, the rest is sent one by one.
func TestBatchDropped(t *testing.T) {
	t.Parallel()
	b := setupBatches(t, natsbroker.Config{}, func(o *server.Options) { o.JetStreamLimits.MaxBatchTimeout = 50 * time.Millisecond })
	b.faults.when(&b.faults.onSend, func(reply string) bool {
		if n, op := operation(reply); n == 20 && op != opEnd {
			<-time.After(300 * time.Millisecond)
		}
		return true
	})
	msgs := numbered("orders", "a", 60)
	if errs := b.p.Publish(t.Context(), msgs); errs != nil {
		t.Error(errs)
	}
	b.check(t, "orders", msgs)
}

// TestBatchDisabledOnTheWay: batches are disabled in the middle of one.
func TestBatchDisabledOnTheWay(t *testing.T) {
	t.Parallel()
	b := setupBatches(t, natsbroker.Config{}, nil)
	_, js := connect(t, b.server.address())
	b.faults.when(&b.faults.onSend, once(func(reply string) bool {
		if n, _ := operation(reply); n != 20 {
			return false
		}
		cfg := jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"ORDERS.>"}, Duplicates: 2 * time.Minute, AllowDirect: true}
		if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
			t.Error(err)
		}
		return false
	}))
	msgs := numbered("orders", "a", 60)
	if errs := b.p.Publish(t.Context(), msgs); errs != nil {
		t.Error(errs)
	}
	b.check(t, "orders", msgs)
}

// TestBatchSubjectMoved: a subject was moved to another stream after the publisher started. That stream gets nothing.
func TestBatchSubjectMoved(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]bool{"at the start": true, "among others": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startEmbedded(t, nil)
			createStream(t, s.address(), "ORDERS", true, "orders", "invoices")
			p := open(t, "nats://"+s.address()+"?stream=ORDERS&prefix=-&subjects=orders", natsbroker.Config{})
			_, js := connect(t, s.address())
			if _, err := js.UpdateStream(t.Context(), jetstream.StreamConfig{
				Name: "ORDERS", Subjects: []string{"orders"}, Duplicates: 2 * time.Minute, AllowBatchPublish: true,
			}); err != nil {
				t.Fatal(err)
			}
			if first { // the batch starts at the other stream and is rejected there
				other := createStream(t, s.address(), "INVOICES", true, "invoices")
				errs := p.Publish(t.Context(), append(numbered("invoices", "b", 3), numbered("orders", "a", 3)...))
				wantOutcome(t, errs[0], postrider.Retried, "another stream than ORDERS takes subject invoices")
				wantOutcome(t, errs[1], postrider.Retried, postrider.ErrPredecessorFailed.Error())
				if errs[3] != nil || errs[5] != nil {
					t.Errorf("errors = %v", errs)
				}
				if info, err := other.Info(t.Context()); err != nil || info.State.Msgs != 0 {
					t.Errorf("the other stream has %+v, %v", info, err)
				}
				return
			}
			errs := p.Publish(t.Context(), append(numbered("orders", "a", 3), append(numbered("invoices", "b", 2), numbered("orders", "c", 3)...)...))
			wantOutcome(t, errs[3], postrider.BrokerUnavailable, "stream ORDERS does not answer")
			wantOutcome(t, errs[4], postrider.BrokerUnavailable, postrider.ErrPredecessorFailed.Error())
			for _, i := range []int{0, 1, 2, 5, 6, 7} {
				if errs[i] != nil {
					t.Errorf("message %d: %v", i, errs[i])
				}
			}
		})
	}
}

// TestBatchTwoPublishers has two processes publish the same messages concurrently, as when a relay takes over from one
// that is still running: each message is stored once, and in order.
func TestBatchTwoPublishers(t *testing.T) {
	t.Parallel()
	b := setupBatches(t, natsbroker.Config{}, nil)
	msgs := numbered("orders", "a", 4_000)
	second := open(t, "nats://"+b.server.address()+"?stream=ORDERS", natsbroker.Config{MaxInFlight: 100})
	var calls sync.WaitGroup
	for _, p := range []*natsbroker.Publisher{b.p, second} {
		calls.Go(func() {
			for part := range slices.Chunk(msgs, 250) {
				deliver(t, p, part)
			}
		})
	}
	calls.Wait()
	b.check(t, "orders", msgs)
}

// TestBatchCopied: mirrors of the stream, and streams that use it as a source, get every message of a batch, including
// its first one, which names the stream.
func TestBatchCopied(t *testing.T) {
	t.Parallel()
	b := setupBatches(t, natsbroker.Config{}, nil)
	_, js := connect(t, b.server.address())
	from := &jetstream.StreamSource{Name: "ORDERS"}
	for _, cfg := range []jetstream.StreamConfig{
		{Name: "MIRROR", Mirror: from},
		{Name: "SOURCED", Sources: []*jetstream.StreamSource{from}},
		{Name: "SOURCED_BATCHES", Sources: []*jetstream.StreamSource{from}, AllowBatchPublish: true},
	} {
		stream, err := js.CreateStream(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer await(t, "150 messages in stream "+cfg.Name, func() bool {
			info, err := stream.Info(t.Context())
			return err == nil && info.State.Msgs == 150
		})
	}
	for part := range slices.Chunk(numbered("orders", "a", 150), 50) {
		if errs := b.p.Publish(t.Context(), part); errs != nil {
			t.Fatal(errs)
		}
	}
}

// TestBatchPermissions: batches need no more permissions than single messages.
func TestBatchPermissions(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "shop", Password: "secret", Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: []string{"ORDERS.>", "$JS.API.STREAM.INFO.ORDERS", "$JS.API.STREAM.CREATE.ORDERS"}},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
		}}}
	})
	conn, _ := connect(t, "nats://shop:secret@"+s.address())
	p, err := natsbroker.New(t.Context(), conn, natsbroker.Config{Stream: "ORDERS"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	natsbroker.LookAgain(p)
	before := conn.Stats().InMsgs
	if errs := p.Publish(t.Context(), numbered("orders", "a", 100)); errs != nil {
		t.Fatal(errs)
	}
	if n := conn.Stats().InMsgs - before; n >= 100 {
		t.Errorf("%d answers to 100 messages: they went one by one", n)
	}
}

// TestBatchResourcesRunOut: if an account or server runs out of resources, messages that did not fit are Unavailable.
func TestBatchResourcesRunOut(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, batches bool) {
		s := startEmbedded(t, func(o *server.Options) { o.JetStreamMaxStore = 20_000 })
		createStream(t, s.address(), "ORDERS", batches)
		p := open(t, "nats://"+s.address()+"?stream=ORDERS", natsbroker.Config{})
		msgs := numbered("orders", "a", 200)
		errs := p.Publish(t.Context(), msgs)
		stored := slices.IndexFunc(errs, func(err error) bool { return err != nil })
		if stored <= 0 {
			t.Fatalf("the first error is at %d", stored)
		}
		for _, err := range errs[stored:] {
			wantOutcome(t, err, postrider.BrokerUnavailable)
		}
		if got := arrived(t, s.address(), "ORDERS", "orders"); len(got) != stored {
			t.Errorf("the stream has %d messages, %d were accepted", len(got), stored)
		}
	})
}
