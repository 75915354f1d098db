//go:build !race

package mysql_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

// bytesOf returns random bytes with everything that a text would have to escape.
func bytesOf(n int) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(random.Uint32())
	}
	return out
}

// smallPackets makes a server that takes little, so that the tests need not write much.
const smallPackets = "--max-allowed-packet=4M"

// TestLargeMessages: a message takes about its size in a packet, and arrives byte for byte, whatever the session's character
// sets and the driver's way of sending values are.
func TestLargeMessages(t *testing.T) {
	t.Parallel()
	on := newCrashing(t, smallPackets).config(t)
	for name, c := range map[string]struct {
		settings    map[string]string
		interpolate bool
		share       float64 // of a packet
	}{
		"as usual":     {nil, false, 0.9},
		"interpolated": {nil, true, 0.9},
		"converted":    {map[string]string{"character_set_client": "latin1"}, false, 0.4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := databaseOn(t, on)
			d.config.InterpolateParams = c.interpolate
			db := d.migrated(t, c.settings, mysqlstore.Config{Partitions: 1})
			s := newStore(t, db, mysqlstore.Config{})
			var packet float64
			must(t, db.QueryRow("SELECT @@max_allowed_packet").Scan(&packet))
			payload := bytesOf(int(c.share * packet))
			m := &postrider.Message{ID: "1", Type: "t", Topic: "t", Source: "s", ContentType: "a/b", Time: time.Unix(1, 0).UTC(), Payload: payload}
			tx, err := s.Begin(t.Context())
			must(t, err)
			must(t, s.Insert(t.Context(), tx, []*postrider.Message{m}))
			must(t, s.Commit(t.Context(), tx))
			batches, err := s.Fetch(t.Context(), "", store.FetchRequest{
				Limit: 1, MaxBytes: 1 << 30, Partitions: []store.FetchPartition{{LeaseRef: store.LeaseRef{Partition: 0}}},
			})
			must(t, err)
			if len(batches) != 1 || len(batches[0].Entries) != 1 || !bytes.Equal(batches[0].Entries[0].Message.Payload, payload) {
				t.Fatal("the message did not arrive as it was")
			}
			n, err := deadletter.New(s).ImportDead(t.Context(), []store.ArchivedDead{{DeadLetter: store.DeadLetter{
				Relay: "r", Message: m, State: store.DeadOpen, DiedAt: time.Unix(2, 0),
			}}})
			if n != 1 || err != nil {
				t.Fatalf("imported %d, %v", n, err)
			}
			edited, err := deadletter.New(s).EditDead(t.Context(), 1, store.Edit{Payload: payload[1:], By: "olga", Why: "shorter"})
			must(t, err)
			if !bytes.Equal(edited.Message.Payload, payload[1:]) {
				t.Error("the payload is not as it was edited")
			}
		})
	}
}

// TestConsumerOfMessagesThatAreTooLarge: what does not fit into a packet is dead-lettered without its payload, and everything
// else flows. Many messages of 200 KiB are parked in several statements.
func TestConsumerOfMessagesThatAreTooLarge(t *testing.T) {
	t.Parallel()
	s := newStore(t, databaseOn(t, newCrashing(t, smallPackets).config(t)).migrated(t, nil, mysqlstore.Config{Partitions: 4}), mysqlstore.Config{})
	b, err := memorybroker.New(memorybroker.Config{})
	must(t, err)
	source, err := b.Subscriber(memorybroker.SubscriberConfig{Group: "view", Topics: []string{"t"}, Partitions: 1})
	must(t, err)
	in, err := inbox.New(s)
	must(t, err)
	c, err := inbox.NewConsumer(in, source, inbox.ConsumerConfig{
		Name: "view", MaxAttempts: 1, MaxInFlightBytes: 1 << 30, Logger: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	applied := make(chan string, 100)
	must(t, c.HandleFunc("t", func(_ context.Context, _ *sql.Tx, m *postrider.Message) error {
		switch m.Key {
		case "bad":
			return postrider.Dead("too much", nil)
		case "late":
			return postrider.Snooze(time.Hour)
		}
		applied <- m.ID
		return nil
	}))
	message := func(id, key string, size int) *postrider.Message {
		return &postrider.Message{ID: id, Key: key, Type: "t", Topic: "t", Source: "s", Time: time.Now(), ContentType: "a/b", Payload: make([]byte, size)}
	}
	msgs := []*postrider.Message{message("large", "bad", 5<<20)}
	for i := range 40 {
		msgs = append(msgs, message(string(rune('A'+i)), "late", 200<<10))
	}
	for _, err := range b.Publish(t.Context(), append(msgs, message("good", "good", 1))) {
		must(t, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Run(context.Background()) }()
	t.Cleanup(func() {
		must(t, c.Stop(context.Background()))
		must(t, <-ended)
	})
	select {
	case <-applied:
	case <-time.After(5 * time.Minute):
		t.Fatal("the small message was not applied")
	}
	deadLetters := deadOnceSettled(t, s, b)
	if l := deadLetters[0]; len(deadLetters) != 1 || l.Message.ID != "large" || l.Message.Key != "bad" || len(l.Message.Payload) != 0 ||
		!strings.Contains(l.Cause, "max_allowed_packet") || !strings.Contains(l.Cause, "payload (5242880 bytes") {
		t.Errorf("dead letters: %+v", deadLetters)
	}
}

// deadOnceSettled waits until the consumer has settled everything, and returns the dead letters.
func deadOnceSettled(t *testing.T, s *mysqlstore.Store, b *memorybroker.Broker) (deadLetters []store.DeadLetter) {
	t.Helper()
	deadline, tick := time.After(5*time.Minute), time.NewTicker(50*time.Millisecond)
	defer tick.Stop()
	for len(deadLetters) == 0 || len(b.Unsettled("view")) > 0 {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d dead letters, %d messages unsettled", len(deadLetters), len(b.Unsettled("view")))
		}
		deadLetters = nil
		for l, err := range deadletter.New(s).ListDead(t.Context(), store.DeadFilter{}, 0, 0) {
			must(t, err)
			deadLetters = append(deadLetters, l)
		}
	}
	return deadLetters
}

// TestLargeTransaction: a transaction commits whose IDs take more than a packet, also when InTx looks for what savepoints have undone.
func TestLargeTransaction(t *testing.T) {
	t.Parallel()
	d := databaseOn(t, newCrashing(t, "--max-allowed-packet=1M").config(t))
	s := newStore(t, d.migrated(t, nil, mysqlstore.Config{}), mysqlstore.Config{})
	const n = 25_000
	committed := 0
	o, err := outbox.New(s, outbox.Config{Source: "shop", Hooks: []outbox.Hooks{{
		AfterCommit: func(_ context.Context, msgs []*postrider.Message) error {
			committed = len(msgs)
			return nil
		},
	}}})
	must(t, err)
	ids, err := o.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := o.PublishSeq(ctx, tx, func(yield func(*postrider.Message, error) bool) {
			for i := range n {
				id := fmt.Sprintf("%064d", i) // 64 bytes, so 1.6 MB in all
				if !yield(&postrider.Message{ID: id, Type: "t", Topic: "t", Payload: []byte("{}")}, nil) {
					return
				}
			}
		})
		return err
	})
	must(t, err)
	if len(ids) != n || committed != n {
		t.Errorf("InTx returned %d IDs, and the hook got %d messages, want %d", len(ids), committed, n)
	}
}
