package inspect_test

import (
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inspect"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// bundle is an outbox with one partition, and what tests do to it.
type bundle struct {
	*memory.Store
	t *testing.T
}

func setup(t *testing.T) bundle {
	t.Helper()
	return bundle{memory.New(memory.Config{Partitions: 1}), t}
}

func (b bundle) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// publish publishes messages with these IDs and one key.
func (b bundle) publish(key string, ids ...string) {
	b.t.Helper()
	tx, err := b.Begin(b.t.Context())
	b.must(err)
	for _, id := range ids {
		b.must(b.Insert(b.t.Context(), tx, []*postrider.Message{message(id, key)}))
	}
	b.must(b.Commit(b.t.Context(), tx))
}

func message(id, key string) *postrider.Message {
	m := &postrider.Message{ID: id, Type: "order.placed", Topic: "orders", Key: key, Payload: []byte("{}")}
	m.FillDefaults("shop", time.Now())
	return m
}

var worker = store.Owner{ID: "host-1", Host: "host", Version: "v1", Topics: []string{"*"}}

// lease leases the partition for the relay. It does not end by itself.
func (b bundle) lease(name string, owner store.Owner) store.Lease {
	b.t.Helper()
	_, err := b.Heartbeat(b.t.Context(), name, owner, 24*time.Hour)
	b.must(err)
	leases, err := b.Acquire(b.t.Context(), name, owner, store.AcquireRequest{
		TTL: 24 * time.Hour, Claims: []store.LeaseClaim{{Partition: 0, Token: store.NewToken()}},
	})
	b.must(err)
	if len(leases) != 1 {
		b.t.Fatalf("leases: %+v", leases)
	}
	return leases[0]
}

func (b bundle) leave(name string) { b.t.Helper(); b.must(b.Leave(b.t.Context(), name, worker)) }

// settle makes a relay read the log to its end and settle each message as decide says, and leaves.
func (b bundle) settle(name string, decide func(s *store.Settlement, m *postrider.Message)) {
	b.t.Helper()
	l := b.lease(name, worker)
	batches, err := b.Fetch(b.t.Context(), name, store.FetchRequest{
		Limit: 100, MaxBytes: 1 << 20, Partitions: []store.FetchPartition{{LeaseRef: l.Ref(), After: l.Cursor}},
	})
	b.must(err)
	s := store.Settlement{Token: l.Token, Number: l.Settled + 1}
	for _, batch := range batches {
		s.Cursor, s.Moved = batch.Next, true
		for _, r := range batch.Entries {
			decide(&s, r.Message)
		}
	}
	b.apply(name, s)
	b.leave(name)
}

// parked makes a relay settle its parked messages as decide says, and leaves.
func (b bundle) parked(name string, decide func(s *store.Settlement, m *postrider.Message)) {
	b.t.Helper()
	l := b.lease(name, worker)
	due, err := b.Due(b.t.Context(), name, store.DueRequest{Leases: []store.LeaseRef{l.Ref()}, Runs: 10, RunLength: 10, MaxBytes: 1 << 20})
	b.must(err)
	s := store.Settlement{Token: l.Token, Number: l.Settled + 1}
	for _, run := range due.Runs {
		for _, r := range run.Entries {
			decide(&s, r.Message)
		}
	}
	b.apply(name, s)
	b.leave(name)
}

func (b bundle) apply(name string, s store.Settlement) {
	b.t.Helper()
	out, err := b.Settle(b.t.Context(), name, []store.Settlement{s})
	b.must(err)
	if len(out.Lost)+len(out.Failed) > 0 {
		b.t.Fatalf("settled: %+v", out)
	}
}

func deliver(*store.Settlement, *postrider.Message) {}

func removeParked(s *store.Settlement, m *postrider.Message) {
	s.Removed = append(s.Removed, m.Sequence)
}

func deadLetter(s *store.Settlement, m *postrider.Message) {
	s.Dead = append(s.Dead, store.DeadOutcome{
		Sequence: m.Sequence, Key: m.Key, FromLog: true, Reason: "attempts exhausted", Cause: "answer 503", Attempts: 10,
	})
}

// retryIn parks a message for its next attempt.
func retryIn(after time.Duration) func(s *store.Settlement, m *postrider.Message) {
	return func(s *store.Settlement, m *postrider.Message) {
		s.Parked = append(s.Parked, store.ParkOutcome{
			Sequence: m.Sequence, FromLog: true, Reason: store.ParkRetry, After: after, Attempts: 2, Cause: "answer 503",
		})
	}
}

// hold holds the key of the messages, with the first as the blocking message.
func hold(s *store.Settlement, m *postrider.Message) {
	p := store.ParkOutcome{Sequence: m.Sequence, Key: m.Key, FromLog: true, Reason: store.ParkHeld, Waits: true}
	if len(s.Held) == 0 {
		p.Reason, p.Attempts, p.Cause = store.ParkRetry, 3, "answer 503"
		s.Held = append(s.Held, store.HeldKey{
			Key: m.Key, Sequence: m.Sequence, Reason: store.ParkRetry, Cause: p.Cause, Attempts: 3, After: time.Minute,
		})
	}
	s.Parked = append(s.Parked, p)
}

// holdForDead dead-letters the first message and holds its key until somebody decides.
func holdForDead(s *store.Settlement, m *postrider.Message) {
	if len(s.Held) > 0 {
		s.Parked = append(s.Parked, store.ParkOutcome{Sequence: m.Sequence, Key: m.Key, FromLog: true, Reason: store.ParkHeld, Waits: true})
		return
	}
	deadLetter(s, m)
	s.Held = append(s.Held, store.HeldKey{
		Key: m.Key, Sequence: m.Sequence, Reason: store.ParkDead, Cause: "answer 503", Attempts: 10, UntilDecided: true,
	})
}

// enroll makes a consumer, which parks a message if park is set.
func (b bundle) enroll(name string, park *postrider.Message) {
	b.t.Helper()
	ctx := b.t.Context()
	b.must(b.Enroll(ctx, name))
	if park == nil {
		return
	}
	tx, err := b.Begin(ctx)
	b.must(err)
	b.must(b.Park(ctx, tx, name, []store.ParkRequest{{Message: park, Reason: store.ParkRetry, After: time.Hour, Cause: "no such order"}}))
	b.must(b.Commit(ctx, tx))
}

// place returns what an explanation says about a relay or consumer.
func place(t *testing.T, e inspect.Explanation, name string) inspect.Place {
	t.Helper()
	for _, p := range e.Places {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("nothing about %s in %+v", name, e)
	return inspect.Place{}
}
