package natsbroker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

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
