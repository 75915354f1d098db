package natsbroker_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
)

func open(t *testing.T, url string, cfg natsbroker.Config) *natsbroker.Publisher {
	t.Helper()
	p, err := natsbroker.Open(t.Context(), url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p
}

// numbered returns n messages of one topic and key, with increasing IDs.
func numbered(topic, key string, n int) []*postrider.Message {
	msgs := make([]*postrider.Message, n)
	for i := range msgs {
		msgs[i] = &postrider.Message{
			ID: fmt.Sprintf("%s-%s-%05d", topic, key, i+1), Type: "test", Topic: topic, Key: key, AggregateVersion: int64(i + 1),
			Payload: []byte("x"),
		}
	}
	return msgs
}

// bothWays runs a test with and without batches.
func bothWays(t *testing.T, test func(t *testing.T, batches bool)) {
	t.Helper()
	for name, batches := range map[string]bool{"batches": true, "one by one": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, batches)
		})
	}
}

func wantOutcome(t *testing.T, err error, kind postrider.OutcomeKind, parts ...string) {
	t.Helper()
	if got := postrider.OutcomeOf(err).Kind; got != kind {
		t.Errorf("outcome of %v is %d, want %d", err, got, kind)
	}
	wantError(t, err, parts...)
}

func TestStreamFull(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, batches bool) {
		s := startEmbedded(t, nil)
		_, js := connect(t, s.address())
		stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
			Name: "FULL", Subjects: []string{"FULL.>"}, Discard: jetstream.DiscardNew, MaxMsgs: 5, AllowBatchPublish: batches,
		})
		if err != nil {
			t.Fatal(err)
		}
		p := open(t, "nats://"+s.address()+"?stream=FULL", natsbroker.Config{})
		msgs := numbered("orders", "a", 8)
		errs := p.Publish(t.Context(), msgs)
		for i, err := range errs {
			switch {
			case i < 5 && err != nil:
				t.Errorf("message %s: %v", msgs[i].ID, err)
			case i == 5:
				wantOutcome(t, err, postrider.BrokerUnavailable, "the stream is full", "raise --max-msgs")
			case i > 5:
				wantOutcome(t, err, postrider.BrokerUnavailable, postrider.ErrPredecessorFailed.Error())
			}
		}
		if err := stream.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		if errs := p.Publish(t.Context(), msgs[5:]); errs != nil {
			t.Errorf("after the purge: %v", errs)
		}
	})
}

func TestSubjectFull(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, batches bool) {
		s := startEmbedded(t, nil)
		_, js := connect(t, s.address())
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
			Name: "FULL", Subjects: []string{"FULL.>"}, Discard: jetstream.DiscardNew, MaxMsgsPerSubject: 1, DiscardNewPerSubject: true,
			AllowBatchPublish: batches,
		}); err != nil {
			t.Fatal(err)
		}
		p := open(t, "nats://"+s.address()+"?stream=FULL", natsbroker.Config{})
		msgs := append(numbered("orders", "a", 3), numbered("others", "b", 1)...)
		msgs = append(msgs, numbered("more", "", 1)...)
		errs := p.Publish(t.Context(), msgs)
		if errs[0] != nil || errs[3] != nil || errs[4] != nil {
			t.Errorf("errors = %v, want none for the first of each subject", errs)
		}
		wantOutcome(t, errs[1], postrider.Retried, "--max-msgs-per-subject")
		wantOutcome(t, errs[2], postrider.Retried, postrider.ErrPredecessorFailed.Error())
	})
}

func TestStreamLimitsSize(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, batches bool) {
		s := startEmbedded(t, nil)
		_, js := connect(t, s.address())
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "SMALL", Subjects: []string{"SMALL.>"}, MaxMsgSize: 10_000, AllowBatchPublish: batches}); err != nil {
			t.Fatal(err)
		}
		p := open(t, "nats://"+s.address()+"?stream=SMALL", natsbroker.Config{})
		limit := p.Capabilities().MaxMessageBytes
		if limit != 10_000-4<<10 {
			t.Errorf("MaxMessageBytes is %d", limit)
		}
		msgs := numbered("orders", "", 3)
		msgs[0].Payload = bytes.Repeat([]byte("x"), limit+1)
		msgs[1].Headers = map[string]string{"h": strings.Repeat("%", 3_500)} // three times as large when encoded
		errs := p.Publish(t.Context(), msgs)
		wantOutcome(t, errs[0], postrider.DeadLettered, "too large")
		wantOutcome(t, errs[1], postrider.DeadLettered, "too large")
		if errs[2] != nil {
			t.Errorf("message %s: %v", msgs[2].ID, errs[2])
		}
	})
}

func TestHeadersTooLarge(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, batches bool) {
		s := startEmbedded(t, nil)
		createStream(t, s.address(), "ORDERS", batches)
		p := open(t, "nats://"+s.address()+"?stream=ORDERS", natsbroker.Config{})
		msgs := numbered("orders", "a", 2)
		msgs[0].Headers = map[string]string{"Ü": strings.Repeat("ü", 12_000)} // six times as large when percent-encoded
		errs := p.Publish(t.Context(), msgs)
		wantOutcome(t, errs[0], postrider.DeadLettered, "headers take")
		wantOutcome(t, errs[1], postrider.Retried, postrider.ErrPredecessorFailed.Error())
		if errs := p.Publish(t.Context(), msgs[1:]); errs != nil {
			t.Error(errs[0])
		}
	})
}

// TestNeighbours: headers of a message do not leak into later messages.
func TestNeighbours(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, batches bool) {
		s := startEmbedded(t, nil)
		createStream(t, s.address(), "ORDERS", batches)
		p := open(t, "nats://"+s.address()+"?stream=ORDERS", natsbroker.Config{})
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		msgs := numbered("orders", "a", 200)
		for _, m := range msgs {
			m.Headers = make(map[string]string)
			for h := range 24 {
				if random.IntN(3) == 0 {
					m.Headers[fmt.Sprintf("h%d", h)] = fmt.Sprintf("%s-%d", m.ID, h)
				}
			}
			if random.IntN(2) == 0 {
				m.Subject, m.Tenant = "subject of "+m.ID, "tenant of "+m.ID
			}
			if random.IntN(2) == 0 {
				m.ContentType, m.CorrelationID = "text/"+m.ID, "correlation of "+m.ID
			}
		}
		if errs := p.Publish(t.Context(), msgs); errs != nil {
			t.Fatal(errs)
		}
		got := arrived(t, s.address(), "ORDERS", "orders")
		if len(got) != len(msgs) {
			t.Fatalf("%d messages arrived of %d", len(got), len(msgs))
		}
		for i, m := range msgs {
			g := got[i]
			if g.ID != m.ID || g.Subject != m.Subject || g.Tenant != m.Tenant || g.ContentType != m.ContentType ||
				g.CorrelationID != m.CorrelationID || !maps.Equal(g.Headers, m.Headers) {
				t.Errorf("message %d arrived as %+v, sent as %+v", i, g, m)
			}
		}
	})
}

func TestNoStreamForSubject(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, batches bool) {
		s := startEmbedded(t, nil)
		createStream(t, s.address(), "ORDERS", batches, "orders.>")
		p := open(t, "nats://"+s.address()+"?stream=ORDERS&prefix=-&subjects=orders.%3E", natsbroker.Config{})
		errs := p.Publish(t.Context(), append(numbered("orders.new", "a", 1), numbered("invoices", "b", 1)...))
		if errs[0] != nil {
			t.Error(errs[0])
		}
		wantOutcome(t, errs[1], postrider.Retried, "no stream takes subject invoices", "nats stream edit ORDERS --subjects=orders.>,invoices")
	})
}

// TestAnotherStream: messages stored by another stream do not count as published to this one.
func TestAnotherStream(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, batches bool) {
		s := startEmbedded(t, nil)
		createStream(t, s.address(), "ORDERS", batches, "orders.>")
		_, js := connect(t, s.address())
		other, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "INVOICES", Subjects: []string{"invoices"}})
		if err != nil {
			t.Fatal(err)
		}
		p := open(t, "nats://"+s.address()+"?stream=ORDERS&prefix=-&subjects=orders.%3E", natsbroker.Config{})
		// The first of b goes to the right stream, the third comes after the second.
		msgs := append(numbered("invoices", "b", 2), numbered("orders.new", "b", 2)...)
		msgs = []*postrider.Message{msgs[2], msgs[0], msgs[3], msgs[1], numbered("orders.new", "a", 1)[0]}
		errs := p.Publish(t.Context(), msgs)
		wantOutcome(t, errs[1], postrider.Retried, "another stream than ORDERS takes subject invoices")
		for _, i := range []int{2, 3} {
			wantOutcome(t, errs[i], postrider.Retried, postrider.ErrPredecessorFailed.Error())
		}
		if errs[0] != nil || errs[4] != nil {
			t.Errorf("errors = %v, want none for the first and the last", errs)
		}
		if info, err := other.Info(t.Context()); err != nil || info.State.Msgs != 0 {
			t.Errorf("the other stream has %+v, %v", info, err)
		}
	})
}

// TestStreamGone: if the stream is deleted while publishing, messages are Unavailable, and nothing is lost.
func TestStreamGone(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, batches bool) {
		s := startEmbedded(t, nil)
		createStream(t, s.address(), "ORDERS", batches)
		p := open(t, "nats://"+s.address()+"?stream=ORDERS", natsbroker.Config{})
		deleteStream(t, s.address(), "ORDERS")
		for _, err := range p.Publish(t.Context(), numbered("orders", "a", 2)) {
			wantOutcome(t, err, postrider.BrokerUnavailable, "stream ORDERS does not answer")
		}
	})
}

// answerAll makes another program answer everything published to a subject, with each of the texts.
func answerAll(t *testing.T, address, subject string, texts ...string) {
	t.Helper()
	conn, _ := connect(t, address)
	if _, err := conn.Subscribe(subject, func(m *nats.Msg) {
		for _, text := range texts {
			if m.Reply != "" {
				_ = m.Respond([]byte(text))
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
}

// strangerAnswers are not answers of a stream, though some look like them.
var strangerAnswers = []string{
	`{"type":"ack","seq":8}`, `{"status":"ok"}`, "pong", "", "7", "{}", `{"seq":7}`, `{"stream":"ORDERS"}`, `{"stream":"ORDERS","seq":0}`,
	`{"error":"not today"}`, `{"error":{"code":404,"description":"not today"}}`,
}

// TestStrangerAnswers: answers of other programs on a topic's subject do not count as the stream's: neither that it has
// stored or rejected the message, nor that it is available.
func TestStrangerAnswers(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, batches bool) {
		s := startEmbedded(t, nil)
		createStream(t, s.address(), "ORDERS", batches, "ORDERS.orders")
		answerAll(t, s.address(), "ORDERS.>", strangerAnswers...)
		url := "nats://" + s.address() + "?stream=ORDERS&subjects=ORDERS.orders"
		p := open(t, url, natsbroker.Config{})
		// Some answers of the other program arrive before the stream's.
		if errs := p.Publish(t.Context(), numbered("orders", "a", 100)); errs != nil {
			t.Error(errs)
		}
		if got := arrived(t, s.address(), "ORDERS", "orders"); len(got) != 100 {
			t.Errorf("%d messages arrived of 100", len(got))
		}
		hasty := open(t, url, natsbroker.Config{PublishTimeout: 300 * time.Millisecond})
		for _, err := range hasty.Publish(t.Context(), numbered("invoices", "", 2)) {
			wantOutcome(t, err, postrider.Retried, "no stream takes subject ORDERS.invoices")
		}
		deleteStream(t, s.address(), "ORDERS")
		errs := hasty.Publish(t.Context(), numbered("orders", "", 8))
		if len(errs) == 0 {
			t.Error("messages are accepted by a stream that is not there")
		}
		for _, err := range errs {
			wantOutcome(t, err, postrider.BrokerUnavailable, "no acknowledgement within 300ms")
		}
	})
}

// TestSubjectMoved: a subject was moved to another stream after the publisher started. A message stored there is not a
// success.
func TestSubjectMoved(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	createStream(t, s.address(), "ORDERS", false, "orders", "invoices")
	p := open(t, "nats://"+s.address()+"?stream=ORDERS&prefix=-&subjects=orders", natsbroker.Config{})
	_, js := connect(t, s.address())
	if _, err := js.UpdateStream(t.Context(), jetstream.StreamConfig{
		Name: "ORDERS", Subjects: []string{"orders"}, Duplicates: 2 * time.Minute,
	}); err != nil {
		t.Fatal(err)
	}
	createStream(t, s.address(), "INVOICES", false, "invoices")
	errs := p.Publish(t.Context(), append(numbered("invoices", "", 1), numbered("orders", "", 1)...))
	if len(errs) != 2 || errs[1] != nil {
		t.Fatalf("errors = %v, want one for the first message", errs)
	}
	wantOutcome(t, errs[0], postrider.Retried, "another stream than ORDERS takes subject invoices")
}

// TestDomain: with a JetStream domain, acknowledgements contain it, and those of duplicates say so.
func TestDomain(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, batches bool) {
		s := startEmbedded(t, func(o *server.Options) { o.JetStreamDomain = "leaf" })
		createStream(t, s.address(), "ORDERS", batches)
		p := open(t, "nats://"+s.address()+"?stream=ORDERS", natsbroker.Config{})
		for range 2 {
			if errs := p.Publish(t.Context(), numbered("orders", "a", 20)); errs != nil {
				t.Fatal(errs)
			}
		}
		if got := arrived(t, s.address(), "ORDERS", "orders"); len(got) != 20 {
			t.Errorf("%d messages arrived, want 20", len(got))
		}
	})
}

func TestNotAllowed(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, batches bool) {
		s := startEmbedded(t, func(o *server.Options) {
			o.Users = []*server.User{{Username: "shop", Password: "secret", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Deny: []string{"ORDERS.secret.>"}},
			}}}
		})
		url := "nats://shop:secret@" + s.address()
		createStream(t, url, "ORDERS", batches)
		p := open(t, url+"?stream=ORDERS", natsbroker.Config{PublishTimeout: 3 * time.Second})
		open, secret := numbered("open", "b", 9), numbered("secret.plan", "a", 6)
		for name, msgs := range map[string][]*postrider.Message{
			"first": {secret[0], secret[1], open[0], open[1], open[2]},
			"among": {open[3], secret[2], open[4], secret[3], open[5]},
			"last":  {open[6], open[7], open[8], secret[4], secret[5]},
		} {
			errs := p.Publish(t.Context(), msgs)
			behind := false
			for i, m := range msgs {
				switch {
				case m.Key == "b" && errs[i] != nil:
					t.Errorf("%s: message %s, which is allowed: %v", name, m.ID, errs[i])
				case m.Key == "a" && behind:
					wantOutcome(t, errs[i], postrider.Retried, postrider.ErrPredecessorFailed.Error())
				case m.Key == "a":
					wantOutcome(t, errs[i], postrider.Retried, "may not publish to subject ORDERS.secret.plan")
					behind = true
				}
			}
		}
	})
}

// TestInFlight checks how much is sent to a server that does not answer: no more messages than the window, and one per
// key if messages are acknowledged individually. The end of a batch is an extra message, which waits for nothing.
func TestInFlight(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	tests := map[string]struct {
		key     string
		batches bool
		want    uint64
	}{
		"window, one by one":  {"", false, 8},
		"one key, one by one": {"a", false, 1},
		"window, batches":     {"", true, 8 + 1},
		"one key, batches":    {"a", true, 8 + 1},
	}
	createStream(t, s.address(), "BATCHES", true)
	createStream(t, s.address(), "SINGLE", false)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			silent := newProxy(t, s.address())
			conn, _ := connect(t, silent.url())
			stream := "SINGLE"
			if tt.batches {
				stream = "BATCHES"
			}
			p, err := natsbroker.New(t.Context(), conn, natsbroker.Config{Stream: stream, MaxInFlight: 8, PublishTimeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			silent.Pause()
			defer silent.Resume()
			before := conn.Stats().OutMsgs
			sent := func() uint64 { return conn.Stats().OutMsgs - before }
			ctx, cancel := context.WithCancel(t.Context())
			var call sync.WaitGroup
			call.Go(func() { p.Publish(ctx, numbered("orders", tt.key, 100)) })
			await(t, "the window is full", func() bool { return sent() >= tt.want })
			cancel()
			call.Wait()
			if sent() != tt.want {
				t.Errorf("%d messages were sent, want %d", sent(), tt.want)
			}
		})
	}
}

// TestWindowIsGivenBack checks that failed calls free their window entries.
func TestWindowIsGivenBack(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, batches bool) {
		s := startEmbedded(t, nil)
		createStream(t, s.address(), "ORDERS", batches)
		faults := newProxy(t, s.address())
		p := open(t, faults.url()+"?stream=ORDERS&max_in_flight=3&publish_timeout=300ms", natsbroker.Config{})
		for i := range 5 {
			msgs := numbered(fmt.Sprintf("orders.%d", i), "", 9)
			faults.mark(faults.loseAck, 1)(msgs[0].ID, msgs[4].ID, msgs[8].ID)
			faults.mark(faults.refuse, 1)(msgs[2].ID)
			p.Publish(t.Context(), msgs)
			faults.Pause()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			p.Publish(ctx, msgs)
			cancel()
			faults.Resume()
			deliver(t, p, msgs)
		}
	})
}

// TestGivenConnection checks that New does not close the caller's connection, even if it has ended.
func TestGivenConnection(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	conn, _ := connect(t, s.address())
	p, err := natsbroker.New(t.Context(), conn, natsbroker.Config{Stream: "ORDERS"})
	if err != nil {
		t.Fatal(err)
	}
	if errs := p.Publish(t.Context(), numbered("orders", "a", 3)); errs != nil {
		t.Error(errs[0])
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if !conn.IsConnected() {
		t.Error("Close of the publisher closed the connection")
	}
	if p, err = natsbroker.New(t.Context(), conn, natsbroker.Config{Stream: "ORDERS"}); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	for _, err := range p.Publish(t.Context(), numbered("orders", "a", 1)) {
		wantOutcome(t, err, postrider.BrokerUnavailable)
	}
	if err := p.Close(); err != nil {
		t.Errorf("close after the connection: %v", err)
	}
}

// TestLameDuck checks that an orderly server shutdown has no effect.
func TestLameDuck(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, func(o *server.Options) {
		o.LameDuckDuration, o.LameDuckGracePeriod = 200*time.Millisecond, 10*time.Millisecond
	})
	p := open(t, "nats://"+s.address()+"?stream=ORDERS&publish_timeout=1s", natsbroker.Config{
		Options: []nats.Option{nats.CustomReconnectDelay(func(int) time.Duration { return 10 * time.Millisecond })},
	})
	restarted := make(chan struct{})
	go func() {
		defer close(restarted)
		s.server.LameDuckShutdown()
		s.server.WaitForShutdown()
		s.start(t)
	}()
	var all []*postrider.Message
	for n := 0; ; n++ {
		msgs := numbered(fmt.Sprintf("orders.%d", n), "a", 50)
		all = append(all, msgs...)
		deliver(t, p, msgs)
		select {
		case <-restarted:
		default:
			continue
		}
		break
	}
	if got := arrived(t, s.address(), "ORDERS", "orders.*"); len(got) < len(all) {
		t.Errorf("%d messages arrived of %d", len(got), len(all))
	}
}

// deliver publishes like a relay until everything is accepted.
func deliver(t *testing.T, p *natsbroker.Publisher, msgs []*postrider.Message) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	probe := time.NewTicker(10 * time.Millisecond)
	defer probe.Stop()
	for {
		errs := p.Publish(ctx, msgs)
		var again []*postrider.Message
		for i, err := range errs {
			if err != nil {
				again = append(again, msgs[i])
			}
		}
		if len(again) == 0 {
			return
		}
		msgs = again
		select {
		case <-probe.C:
		case <-ctx.Done():
			t.Fatalf("%d messages are not delivered: %v", len(msgs), errs[len(errs)-1])
		}
	}
}
