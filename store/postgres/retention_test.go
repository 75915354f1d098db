//go:build !race

package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/legalhold"
	"github.com/postrider/postrider/retention"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// TestSegmentWithAnUncommittedRowIsNotDropped: a writer draws its number before publishers move to the next segment, and commits
// while the drop waits for its lock.
func TestSegmentWithAnUncommittedRowIsNotDropped(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	ctx := t.Context()
	b.lease(t, "r")
	w := b.begin(t)
	if _, err := w.Exec(ctx, fmt.Sprintf("insert into %s (partition, id, topic, type) values (0, 'late', 't', 'x')", b.table("log"))); err != nil {
		t.Fatal(err)
	}
	old := b.nextSegment(t)
	// Commit as soon as the drop waits for the writer's lock, or has given up.
	dropped := make(chan error, 1)
	go func() { dropped <- b.DropSegment(context.WithoutCancel(ctx), old) }()
	for waits := false; !waits && len(dropped) == 0; {
		waits = one[bool](t, b.pool, "select exists (select 1 from pg_locks where not granted and $1::int4 = any(pg_blocking_pids(pid)))",
			int32(w.Conn().PgConn().PID()))
	}
	if err := w.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-dropped; err != nil {
		t.Fatal(err)
	}
	if n := one[int64](t, b.pool, "select count(*) from "+b.table("log")+" where id = 'late'"); n != 1 {
		t.Error("a committed row was dropped with its segment")
	}
}

// TestRetentionLooksByIndex: the check for undelivered messages runs under a lock that fetches wait for.
func TestRetentionLooksByIndex(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	b.lease(t, "r")
	old := b.past(t, 5, 20000)
	b.exec(t, fmt.Sprintf("update %s set position = (select max(seq) from %s), snapshot = pg_current_snapshot(), ceiling = pg_current_xact_id()",
		b.table("cursors"), b.table("log")))
	plan, err := b.ExplainUndelivered(t.Context(), old)
	if err != nil {
		t.Fatal(err)
	}
	// 8 partitions, a few index descents each.
	if n := buffers(t, plan); n > 500 {
		t.Errorf("the look touched %d pages:\n%s", n, plan)
	}
	b.drop(t, store.Retention{For: time.Hour}, old)
}

// TestRowOfNoPartitionIsKept: retention moves it before it drops its segment.
func TestRowOfNoPartitionIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 2})
	leases := b.lease(t, "r")
	b.exec(t, fmt.Sprintf("insert into %s (partition, id, topic, type) values (2, 'stray', 't', 'x')", b.table("log")))
	b.nextSegment(t)
	b.deliverAll(t, "r", leases)
	b.maintain(t, store.Retention{For: time.Hour})
	if n := one[int64](t, b.pool, "select count(*) from "+b.table("log")+" where id = 'stray' and partition in (0, 1)"); n != 1 {
		t.Error("a message that nobody has delivered was dropped")
	}
}

// TestSegmentsAreDroppedWithoutARelay: something else reads the log, so age alone decides, unless a relay is registered.
func TestSegmentsAreDroppedWithoutARelay(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	keep := store.Retention{For: time.Hour, WithoutRelay: true}
	old := b.past(t, 5, 100)
	b.maintain(t, store.Retention{For: time.Hour})
	if !b.exists(t, old) {
		t.Error("a segment was dropped that nobody has read")
	}
	b.drop(t, keep, old)
	unread := b.past(t, 5, 100)
	b.lease(t, "r")
	for range 3 {
		b.maintain(t, keep)
	}
	if !b.exists(t, unread) {
		t.Error("a segment was dropped that a relay has not delivered")
	}
}

// TestSegmentsAreKeptForALegalHold: also by a process that has looked for a hold before it was placed.
func TestSegmentsAreKeptForALegalHold(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	keep := store.Retention{For: time.Hour, WithoutRelay: true}
	old := b.past(t, 5, 100)
	h, err := legalhold.New(b).Place(t.Context(), "olga", "case 17")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		b.maintain(t, keep)
	}
	if !b.exists(t, old) {
		t.Error("a segment was dropped under a legal hold")
	}
	if _, err := legalhold.New(b).Release(t.Context(), h.ID, "olga", "closed"); err != nil {
		t.Fatal(err)
	}
	b.drop(t, keep, old)
}

// TestSegmentsAreKeptForATopic: the first message that its topic keeps also keeps the later segments, until its time is over.
func TestSegmentsAreKeptForATopic(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	before := b.past(t, 5, 10)
	b.exec(t, fmt.Sprintf("insert into %s (partition, id, topic, type, created_at) values (1, 'audited', 'audit.log', 'x', clock_timestamp() - interval '5 hours')", b.table("log")))
	with, after := b.past(t, 5, 10), b.past(t, 5, 10)
	maintain := func(audit time.Duration, gone string) {
		t.Helper()
		k, err := retention.New(b, retention.Config{For: time.Hour, Topics: map[string]time.Duration{"audit.*": audit}, WithoutRelay: true})
		must(t, err)
		for end := time.Now().Add(patience); b.exists(t, gone); {
			done, err := k.Maintain(t.Context())
			must(t, err)
			if time.Now().After(end) {
				t.Fatalf("%s is not dropped: %s", gone, done.Deferred)
			}
		}
		_, err = k.Maintain(t.Context())
		must(t, err)
	}
	maintain(90*time.Hour, before)
	if !b.exists(t, with) || !b.exists(t, after) {
		t.Error("a segment was dropped with a message that its topic keeps, or after it")
	}
	maintain(2*time.Hour, with) // its time is over
}
