package clitest

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/store"
)

// WithDead returns an outbox with dead letters 1, 2, 3 for the keys order/1, order/2, order/3.
func WithDead(t *testing.T) string {
	t.Helper()
	url := NewOutbox(t)
	PublishKeys(t, url, "order/1")
	DeadLetterOne(t, url, "to-nats")
	PublishKeys(t, url, "order/2")
	DeadLetterOne(t, url, "to-nats")
	PublishKeys(t, url, "order/3")
	DeadLetterOne(t, url, "to-nats")
	return url
}

// PublishID publishes a message and returns its ID.
func PublishID(t *testing.T, url, key string, more ...string) string {
	t.Helper()
	args := append([]string{"publish", "--store", url, "--type", "order.placed", "--key", key, "--payload", "{}"}, more...)
	return strings.TrimSpace(OK(t, args...))
}

// DeliveredAgain settles a parked record as delivered.
func DeliveredAgain(s *store.Settlement, r store.Entry) {
	s.Removed = append(s.Removed, r.Message.Sequence)
	s.DeliveredCount++
}

// WithHeld returns an outbox in which key order/1 is held with two messages queued after its blocking message, and
// order/2 with none.
func WithHeld(t *testing.T) string {
	t.Helper()
	url := NewOutbox(t)
	PublishKeys(t, url, "order/1", "order/2", "order/1", "order/1")
	Hold(t, url, "to-nats")
	return url
}

// NewOutbox returns the URL of a fresh outbox in a SQLite file.
func NewOutbox(t *testing.T) string {
	t.Helper()
	url := "sqlite:" + filepath.Join(t.TempDir(), "shop.db")
	OK(t, "migrate", "up", "--store", url)
	return url
}

// OpenOutbox opens an outbox next to the program.
func OpenOutbox(t *testing.T, url string) *backend.Outbox {
	t.Helper()
	o, err := backend.Open(t.Context(), config.Store{URL: url}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o
}

// Tester is the process whose relays the tests imitate.
var Tester = store.Owner{ID: "tester-1", Host: "here", Version: "v0"}

// Acquire returns a request for the leases of partitions.
func Acquire(partitions ...int) store.AcquireRequest {
	req := store.AcquireRequest{TTL: time.Minute}
	for _, p := range partitions {
		req.Claims = append(req.Claims, store.LeaseClaim{Partition: p, Token: store.NewToken()})
	}
	return req
}

// SettleAll makes a relay of the given name read the whole log and settle each record as decide says.
func SettleAll(t *testing.T, o *backend.Outbox, name string, decide func(s *store.Settlement, r store.Entry)) {
	t.Helper()
	ctx := t.Context()
	total, err := o.Partitions(ctx)
	Must(t, err)
	_, err = o.Heartbeat(ctx, name, Tester, time.Minute)
	Must(t, err)
	all := make([]int, total)
	for i := range all {
		all[i] = i
	}
	leases, err := o.Acquire(ctx, name, Tester, Acquire(all...))
	Must(t, err)
	req := store.FetchRequest{Limit: 10_000, MaxBytes: 64 << 20}
	byPartition := map[int]store.Lease{}
	for _, l := range leases {
		req.Partitions = append(req.Partitions, store.FetchPartition{LeaseRef: l.Ref(), After: l.Cursor})
		byPartition[l.Partition] = l
	}
	batches, err := o.Fetch(ctx, name, req)
	Must(t, err)
	for _, b := range batches {
		l := byPartition[b.Partition]
		s := store.Settlement{Partition: b.Partition, Token: l.Token, Number: l.Settled + 1, Cursor: b.Next, Moved: true}
		for _, r := range b.Entries {
			decide(&s, r)
		}
		out, err := o.Settle(ctx, name, []store.Settlement{s})
		Must(t, err)
		if len(out.Lost)+len(out.Failed) > 0 {
			t.Fatalf("settled: %+v", out)
		}
	}
	Must(t, o.Leave(ctx, name, Tester))
}

// DeadLetterOne dead-letters everything in the log.
func DeadLetterOne(t *testing.T, url, name string) {
	t.Helper()
	SettleAll(t, OpenOutbox(t, url), name, func(s *store.Settlement, r store.Entry) {
		s.Dead = append(s.Dead, store.DeadOutcome{
			Sequence: r.Message.Sequence, Key: r.Message.Key, FromLog: true, Reason: "attempts exhausted", Cause: "receiver says no", Attempts: 10,
		})
	})
}

// Hold holds every key in the log, with its first message as the blocking message.
func Hold(t *testing.T, url, name string) {
	t.Helper()
	held := map[string]bool{}
	SettleAll(t, OpenOutbox(t, url), name, func(s *store.Settlement, r store.Entry) {
		m := r.Message
		p := store.ParkOutcome{Sequence: m.Sequence, Key: m.Key, FromLog: true, Reason: store.ParkHeld, Waits: true}
		if !held[m.Key] {
			held[m.Key] = true
			p.Reason, p.Attempts, p.Cause = store.ParkRetry, 3, "receiver says no"
			s.Held = append(s.Held, store.HeldKey{
				Key: m.Key, Sequence: m.Sequence, Reason: store.ParkRetry, Cause: p.Cause, Attempts: 3, After: time.Hour,
			})
		}
		s.Parked = append(s.Parked, p)
	})
}

// PublishKeys publishes one message for each key, in order.
func PublishKeys(t *testing.T, url string, keys ...string) {
	t.Helper()
	for _, key := range keys {
		OK(t, "publish", "--store", url, "--type", "order.placed", "--topic", "orders", "--key", key, "--payload", `{"key":"`+key+`"}`)
	}
}

// Delivered settles a record as delivered.
func Delivered(s *store.Settlement, r store.Entry) {
	s.Delivered = append(s.Delivered, r.Message.Sequence)
	s.DeliveredCount++
}

// Published returns every message in the log, in order of sequence within each key.
func Published(t *testing.T, url string) []*postrider.Message {
	t.Helper()
	var out []*postrider.Message
	SettleAll(t, OpenOutbox(t, url), "reader", func(_ *store.Settlement, r store.Entry) { out = append(out, r.Message) })
	return out
}

// SettleDue settles what is due, one partition at a time.
func SettleDue(t *testing.T, o *backend.Outbox, name string, decide func(s *store.Settlement, r store.Entry)) {
	t.Helper()
	ctx := t.Context()
	total, err := o.Partitions(ctx)
	Must(t, err)
	_, err = o.Heartbeat(ctx, name, Tester, time.Minute)
	Must(t, err)
	req := store.DueRequest{Runs: 1_000, RunLength: 1_000, MaxBytes: 1 << 20}
	all := make([]int, total)
	for n := range total {
		all[n] = n
	}
	leases, err := o.Acquire(ctx, name, Tester, Acquire(all...))
	Must(t, err)
	byPartition := map[int]*store.Lease{}
	for i, l := range leases {
		byPartition[l.Partition] = &leases[i]
		req.Leases = append(req.Leases, l.Ref())
	}
	due, err := o.Due(ctx, name, req)
	Must(t, err)
	for _, run := range due.Runs {
		l := byPartition[run.Partition]
		l.Settled++
		s := store.Settlement{Partition: run.Partition, Token: l.Token, Number: l.Settled}
		for _, r := range run.Entries {
			decide(&s, r)
		}
		_, err := o.Settle(ctx, name, []store.Settlement{s})
		Must(t, err)
	}
	Must(t, o.Leave(ctx, name, Tester))
}
