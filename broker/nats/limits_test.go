package natsbroker_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
)

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
