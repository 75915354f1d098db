//go:build !race

package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// holding publishes n messages of key k, parks the first, holds the key, and returns the sequences.
func (b *bundle) holding(t *testing.T, l store.Lease, n int) []int64 {
	t.Helper()
	tx, err := b.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var msgs []*postrider.Message
	for i := range n {
		msgs = append(msgs, &postrider.Message{ID: fmt.Sprintf("m-%d", i), Topic: "t", Type: "x", Source: "test", Key: "k",
			ContentType: "application/json", Payload: []byte("{}")})
	}
	if err := b.Insert(t.Context(), tx, msgs); err != nil {
		t.Fatal(err)
	}
	if err := b.Commit(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	batches, err := b.Fetch(t.Context(), "r", store.FetchRequest{Limit: n, MaxBytes: 1 << 20,
		Partitions: []store.FetchPartition{{LeaseRef: l.Ref(), After: l.Cursor}}})
	if err != nil || len(batches) != 1 || len(batches[0].Entries) != n {
		t.Fatalf("fetched %+v, %v", batches, err)
	}
	var seqs []int64
	for _, r := range batches[0].Entries {
		seqs = append(seqs, r.Message.Sequence)
	}
	b.settle(t, l, store.Settlement{Cursor: batches[0].Next, Moved: true,
		Parked: []store.ParkOutcome{{Sequence: seqs[0], Key: "k", FromLog: true, Waits: true, Reason: store.ParkRetry, Attempts: 1}},
		Held:   []store.HeldKey{{Key: "k", Sequence: seqs[0], Reason: store.ParkRetry, Attempts: 1, After: time.Hour}},
	})
	return seqs
}

// following makes a settlement the next one of its lease.
func (b *bundle) following(t *testing.T, l store.Lease, st store.Settlement) store.Settlement {
	t.Helper()
	st.Partition, st.Token = l.Partition, l.Token
	st.Number = one[int64](t, b.pool, "select max(n) + 1 from "+b.table("cursors")+" where relay = 'r' and partition = $1::int4", l.Partition)
	return st
}

func (b *bundle) settle(t *testing.T, l store.Lease, st store.Settlement) store.Settled {
	t.Helper()
	out, err := b.Settle(t.Context(), "r", []store.Settlement{b.following(t, l, st)})
	if err != nil || len(out.Lost)+len(out.Failed) > 0 {
		t.Fatalf("settled %+v, %v", out, err)
	}
	return out
}

// whileLocked runs second in another session while first, an open transaction that has done something, blocks it. It commits
// first once the server reports that second waits for it.
func whileLocked[T any](t *testing.T, b *bundle, first pgx.Tx, second func() (T, error)) T {
	t.Helper()
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := second()
		done <- result{v, err}
	}()
	pid := one[int](t, first, "select pg_backend_pid()")
	deadline, tick := time.After(patience), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !one[bool](t, b.pool, "select exists (select 1 from pg_stat_activity where $1::int4 = any(pg_blocking_pids(pid)))", pid) {
		select {
		case r := <-done:
			t.Fatalf("did not wait for the other transaction: %+v, %v", r.v, r.err)
		case <-deadline:
			t.Fatal("does not wait for the other transaction")
		case <-tick.C:
		}
	}
	if err := first.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.v
}

func (b *bundle) begin(t *testing.T) pgx.Tx {
	t.Helper()
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // a no-op after a commit
	return tx
}

// TestReleaseSeesWhatIsParkedMeanwhile: a transaction without the lease parks a message of a key, and holds the key, while the
// holder of the lease is about to release it.
func TestReleaseSeesWhatIsParkedMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 1})
	l := b.lease(t, "r")[0]
	seqs := b.holding(t, l, 2)
	tx := b.begin(t)
	if _, err := tx.Exec(t.Context(), fmt.Sprintf(`with held as (update %[2]s set next_attempt_at = now())
		insert into %[1]s select (jsonb_populate_record(p, jsonb_build_object('seq', $1::int8))).* from %[1]s p`,
		b.table("parked"), b.table("held")), seqs[1]); err != nil {
		t.Fatal(err)
	}
	next := b.following(t, l, store.Settlement{Removed: seqs[:1], Release: []string{"k"}, DeliveredCount: 1})
	out := whileLocked(t, b, tx, func() (store.Settled, error) {
		return b.Settle(t.Context(), "r", []store.Settlement{next})
	})
	if len(out.Lost) > 0 || len(out.Released) > 0 {
		t.Errorf("settled %+v, want the key to stay held", out)
	}
	info, parked, err := held.New(b).ShowHeld(t.Context(), "r", "k", 10)
	if err != nil || len(parked) != 1 || info.Sequence != seqs[1] {
		t.Errorf("held: %+v with %+v, %v; want the parked message as head", info, parked, err)
	}
}

// TestRedriveSeesThatTheKeyIsReleased: a message is not queued for a key that is released at the same time.
func TestRedriveSeesThatTheKeyIsReleased(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 1})
	l := b.lease(t, "r")[0]
	seqs := b.holding(t, l, 1)
	b.settle(t, l, store.Settlement{Dead: []store.DeadOutcome{{Sequence: seqs[0], Key: "k", Reason: "rejected"}}})
	tx := b.begin(t)
	if _, err := tx.Exec(t.Context(), "delete from "+b.table("held")); err != nil {
		t.Fatal(err)
	}
	n := whileLocked(t, b, tx, func() (int, error) {
		return deadletter.New(b).RedriveDead(t.Context(), store.DeadFilter{Relay: "r"}, "olga", 0)
	})
	due, err := b.Due(t.Context(), "r", store.DueRequest{Leases: []store.LeaseRef{l.Ref()}, Runs: 10, RunLength: 10, MaxBytes: 1 << 20})
	if n != 1 || err != nil || len(due.Runs) != 1 || len(due.Runs[0].Entries) != 1 {
		t.Errorf("redrove %d; due: %+v, %v; want the message", n, due, err)
	}
}

// TestSettlementAfterAnotherIsLost: while a settlement waits, another settlement of the partition is committed, as when the
// network delivers a repeated one.
func TestSettlementAfterAnotherIsLost(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 1})
	l := b.lease(t, "r")[0]
	next := b.following(t, l, store.Settlement{DeliveredCount: 1})
	tx := b.begin(t)
	if _, err := tx.Exec(t.Context(), fmt.Sprintf(`with o as (delete from %[1]s returning *) insert into %[1]s (relay, partition, n, position,
		snapshot, ceiling, delivered, failed) select relay, partition, n + 1, position, snapshot, ceiling, delivered + 2, failed from o`,
		b.table("cursors"))); err != nil {
		t.Fatal(err)
	}
	out := whileLocked(t, b, tx, func() (store.Settled, error) {
		return b.Settle(context.WithoutCancel(t.Context()), "r", []store.Settlement{next})
	})
	if len(out.Lost) != 1 {
		t.Errorf("settled %+v, want the partition lost", out)
	}
	delivered := one[int64](t, b.pool, "select delivered from "+b.table("cursors")+" order by n desc limit 1")
	if rows := one[int64](t, b.pool, "select count(*) from "+b.table("cursors")); rows != 1 || delivered != 2 {
		t.Errorf("%d cursors, the newest counts %d delivered; want one that counts 2", rows, delivered)
	}
}

// TestDecisionsLockInOneOrder: resolving a dead letter waits for the lease before it locks the dead letter, as skipping the
// blocking message of a key does, so that they cannot deadlock.
func TestDecisionsLockInOneOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 1})
	l := b.lease(t, "r")[0]
	seqs := b.holding(t, l, 1)
	b.settle(t, l, store.Settlement{Dead: []store.DeadOutcome{{Sequence: seqs[0], Key: "k", Reason: "rejected"}}})
	number := one[int64](t, b.pool, "select number from "+b.table("dead"))
	for _, filter := range []store.DeadFilter{{Relay: "r"}, {Numbers: []int64{number}}} {
		tx := b.begin(t)
		if _, err := tx.Exec(t.Context(), "select 1 from "+b.table("leases")+" for key share"); err != nil {
			t.Fatal(err)
		}
		whileLocked(t, b, &thenDead{Tx: tx, lock: "select 1 from " + b.table("dead") + " for update nowait"}, func() (int, error) {
			return deadletter.New(b).DiscardDead(context.WithoutCancel(t.Context()), filter, "olga", "x", 0)
		})
		b.exec(t, "update "+b.table("dead")+" set state = 'open', resolved_at = null")
	}
}

// thenDead locks the dead letters before it commits.
type thenDead struct {
	pgx.Tx
	lock string
}

func (tx *thenDead) Commit(ctx context.Context) error {
	if _, err := tx.Exec(ctx, tx.lock); err != nil {
		return err
	}
	return tx.Tx.Commit(ctx)
}

// TestDeadLettersAreDecidedAboutWhilePartitionsChange: an operator, or a process that drives a redrive, has selected dead letters
// while the number of partitions is changed, which moves them.
func TestDeadLettersAreDecidedAboutWhilePartitionsChange(t *testing.T) {
	t.Parallel()
	const deadLetters = 8
	for name, decide := range map[string]func(ctx context.Context, b *bundle, redrive int64) (int, error){
		"redrive letters": func(ctx context.Context, b *bundle, _ int64) (int, error) {
			return deadletter.New(b).RedriveDead(ctx, store.DeadFilter{}, "olga", 0)
		},
		"discard letters": func(ctx context.Context, b *bundle, _ int64) (int, error) {
			return deadletter.New(b).DiscardDead(ctx, store.DeadFilter{}, "olga", "x", 0)
		},
		"step of a redrive": func(ctx context.Context, b *bundle, redrive int64) (int, error) {
			r, _, err := deadletter.New(b).StepRedrive(ctx, redrive, 0)
			return int(r.Done), err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, b := t.Context(), setup(t, postgres.Config{Partitions: 1})
			var dead []store.ArchivedDead
			for _, m := range newMessages(deadLetters) {
				dead = append(dead, store.ArchivedDead{DeadLetter: store.DeadLetter{Relay: "r", Message: m, DiedAt: time.Now(), State: store.DeadOpen}})
			}
			if _, err := deadletter.New(b).ImportDead(ctx, dead); err != nil {
				t.Fatal(err)
			}
			r, err := deadletter.New(b).StartRedrive(ctx, deadletter.Plan{By: "olga"})
			if err != nil {
				t.Fatal(err)
			}
			tx := b.begin(t)
			if _, err := tx.Exec(ctx, fmt.Sprintf("lock table %s, %s in exclusive mode", b.table("leases"), b.table("dead"))); err != nil {
				t.Fatal(err)
			}
			if err := b.RepartitionIn(ctx, tx, 7); err != nil {
				t.Fatal(err)
			}
			n := whileLocked(t, b, tx, func() (int, error) { return decide(ctx, b, r.ID) })
			if open, err := deadletter.New(b).CountDead(ctx, store.DeadFilter{}); n != deadLetters || open != 0 || err != nil {
				t.Errorf("%d of %d letters were decided about, %d are open, %v", n, deadLetters, open, err)
			}
		})
	}
}
