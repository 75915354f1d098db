//go:build !race

package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// nextSegment moves publishers to the next segment and returns the table of the previous one.
func (b *bundle) nextSegment(t *testing.T) string {
	t.Helper()
	before, err := b.NextSegment(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return before
}

// past writes n messages dated some hours ago, and moves publishers to the next segment. It returns the table that has the
// messages.
func (b *bundle) past(t *testing.T, hours, n int) string {
	t.Helper()
	b.exec(t, fmt.Sprintf(`insert into %s (partition, id, topic, key, type, payload, created_at)
		select i %% 8, i::text, 'orders', 'order/' || i, 'order.placed', 'payload', clock_timestamp() - $1::int4 * interval '1 hour'
		from generate_series(1, $2::int4) as i`, b.table("log")), hours, n)
	return b.nextSegment(t)
}

// age makes all messages older.
func (b *bundle) age(t *testing.T, by string) {
	t.Helper()
	b.exec(t, fmt.Sprintf("update %s set created_at = created_at - $1::text::interval", b.table("log")), by)
}

// maintain maintains the log, and again as long as a busy machine exceeds the time limit of a change.
func (b *bundle) maintain(t *testing.T, r store.Retention) (all store.Maintained) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		m, err := b.Maintain(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		all.Dropped, all.Deferred = all.Dropped+m.Dropped, m.Deferred
		if !strings.Contains(m.Deferred, "took longer than it may") || time.Now().After(end) {
			return all
		}
	}
}

// drop maintains the log until a segment is gone.
func (b *bundle) drop(t *testing.T, r store.Retention, table string) (dropped int64) {
	t.Helper()
	b.maintainUntil(t, r, "the segment "+table+" is dropped", func(m store.Maintained) bool {
		dropped += m.Dropped
		return !b.exists(t, table)
	})
	return dropped
}

// maintainUntil maintains the log until done: on a busy machine a change may not get its locks in time.
func (b *bundle) maintainUntil(t *testing.T, r store.Retention, what string, done func(store.Maintained) bool) {
	t.Helper()
	var m store.Maintained
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if m = b.maintain(t, r); done(m) {
			return
		}
	}
	t.Fatalf("not within %s: %s; deferred: %s", patience, what, m.Deferred)
}

func (b *bundle) exists(t *testing.T, table string) bool {
	t.Helper()
	return one[bool](t, b.pool, "select to_regclass($1::text) is not null", b.table(table))
}

// segments returns the number of segments.
func (b *bundle) segments(t *testing.T) int64 {
	t.Helper()
	return one[int64](t, b.pool, "select count(*) from pg_inherits where inhparent = $1::text::regclass", b.table("log"))
}

// next returns the number that the next message gets.
func (b *bundle) next(t *testing.T) int64 {
	t.Helper()
	return one[int64](t, b.pool, "select last_value + is_called::int4 from "+b.table("log_seq_seq"))
}

// deliverAll fetches and settles up to 1,000 messages of each partition, and returns how many it got.
func (b *bundle) deliverAll(t *testing.T, name string, leases []store.Lease) int {
	t.Helper()
	return len(b.deliver(t, name, leases))
}

// deliver is deliverAll but returns the messages.
func (b *bundle) deliver(t *testing.T, name string, leases []store.Lease) []store.Entry {
	t.Helper()
	req := store.FetchRequest{Limit: 1000, MaxBytes: 64 << 20}
	for _, l := range leases {
		req.Partitions = append(req.Partitions, store.FetchPartition{LeaseRef: l.Ref(), After: l.Cursor})
	}
	batches, err := b.Fetch(t.Context(), name, req)
	if err != nil {
		t.Fatal(err)
	}
	var records []store.Entry
	for _, batch := range batches {
		records = append(records, batch.Entries...)
		l := &leases[batch.Partition]
		l.Cursor = batch.Next
		l.Settled++
		settled, err := b.Settle(t.Context(), name, []store.Settlement{{Partition: batch.Partition, Token: l.Token, Number: l.Settled,
			Moved: true, Cursor: batch.Next, DeliveredCount: int64(len(batch.Entries))}})
		if err != nil || len(settled.Lost) > 0 {
			t.Fatal(settled, err)
		}
	}
	return records
}

func TestSegmentsAreAheadOfPublishers(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{SegmentFor: time.Minute})
	keep := store.Retention{For: time.Minute}
	if n := b.segments(t); n != 3 {
		t.Fatalf("a new outbox has %d segments, want the present one and two ahead", n)
	}
	b.exec(t, fmt.Sprintf("insert into %s (partition, id, topic, type) values (0, '1', 't', 'x')", b.table("log")))
	if m := b.maintain(t, keep); m != (store.Maintained{}) || b.segments(t) != 3 || b.next(t) != 2 {
		t.Errorf("maintained: %+v, %d segments, number %d is next; want no change", m, b.segments(t), b.next(t))
	}
	b.age(t, "2 minutes")
	if m := b.maintain(t, keep); m != (store.Maintained{}) || b.segments(t) != 4 || b.next(t) != 1<<39 {
		t.Errorf("maintained: %+v, %d segments, number %d is next; want that of the second segment, and two ahead of it", m, b.segments(t), b.next(t))
	}
	b.maintain(t, keep)
	if b.next(t) != 1<<39 || b.segments(t) != 4 {
		t.Error("an empty segment was ended")
	}
}

// TestSegmentsAreFew: there are few segments, however long messages are kept and however long a relay delivers nothing.
func TestSegmentsAreFew(t *testing.T) {
	t.Parallel()
	notInShort(t)
	b := setup(t, postgres.Config{SegmentFor: time.Minute})
	publish := fmt.Sprintf("insert into %s (partition, id, topic, type) values (0, 'm', 't', 'x')", b.table("log"))
	b.exec(t, publish)
	b.age(t, "89 minutes")
	if b.maintain(t, store.Retention{For: 24 * time.Hour}); b.next(t) != 2 {
		t.Error("a segment was ended after less than a sixteenth of the retention")
	}
	for range 40 {
		b.exec(t, publish)
		b.age(t, "2 minutes")
		b.maintain(t, store.Retention{})
	}
	if n := b.segments(t); n > 34 {
		t.Errorf("%d segments", n)
	}
}

func TestLargeSegmentIsEndedForTheSizeLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	b.exec(t, fmt.Sprintf(`insert into %s (partition, id, topic, type, payload)
		select i %% 8, i::text, 't', 'x', convert_to(repeat('x', 1500), 'UTF8') from generate_series(1, 12000) as i`, b.table("log")))
	limit := int64(64 << 20)
	if b.maintain(t, store.Retention{For: time.Hour, MaxBytes: 2 * limit}); b.next(t) != 12001 {
		t.Error("a segment was ended long before the log is as large as it may be")
	}
	if b.maintain(t, store.Retention{For: time.Hour, MaxBytes: limit}); b.next(t) != 1<<39 {
		t.Error("the segment goes on")
	}
}

// TestSegmentsWhateverTheSessionsSettings: the bounds of segments are read correctly where a backslash in a string is an escape,
// and where transactions are serializable by default.
func TestSegmentsWhateverTheSessionsSettings(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]map[string]string{
		"dates":       {"timezone": "Asia/Kolkata", "datestyle": "SQL, DMY"},
		"backslashes": {"standard_conforming_strings": "off"},
		"isolation":   {"default_transaction_isolation": "serializable"},
		"timeouts":    {"statement_timeout": "20s", "lock_timeout": "10s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := dsn(t)
			for setting, value := range settings {
				dsn = withParam(t, dsn, setting, value)
			}
			b := setupOn(t, dsn, postgres.Config{SegmentFor: time.Hour})
			old := b.past(t, 5, 10)
			b.deliverAll(t, "r", b.lease(t, "r"))
			b.drop(t, store.Retention{For: time.Hour}, old)
		})
	}
}

func TestSegmentIsDroppedWhenEveryRelayHasDeliveredIt(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	old := b.past(t, 5, 100)
	keep := store.Retention{For: time.Hour}
	if b.maintain(t, keep); !b.exists(t, old) {
		t.Fatal("dropped without any relay")
	}
	fast, slow := b.lease(t, "fast"), b.lease(t, "slow")
	if n := b.deliverAll(t, "fast", fast); n != 100 {
		t.Fatalf("%d messages", n)
	}
	if b.maintain(t, keep); one[int64](t, b.pool, "select count(*) from "+b.table(old)) != 100 {
		t.Fatal("dropped what one relay has not delivered")
	}
	b.deliverAll(t, "slow", slow)
	if b.maintain(t, store.Retention{For: 24 * time.Hour}); !b.exists(t, old) {
		t.Fatal("dropped before its time")
	}
	b.exec(t, "analyze "+b.table(old))
	if n := b.drop(t, keep, old); n != 100 {
		t.Errorf("%d messages were dropped, want 100", n)
	}
}

func TestSegmentIsAsOldAsItsNewestMessage(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	leases := b.lease(t, "r")
	b.exec(t, fmt.Sprintf(`insert into %s (partition, id, topic, type, created_at)
		select i, i::text, 't', 'x', clock_timestamp() - (8 - i) * interval '1 hour' from generate_series(0, 7) as i`, b.table("log")))
	old := b.nextSegment(t)
	b.deliverAll(t, "r", leases)
	if b.maintain(t, store.Retention{For: 90 * time.Minute}); !b.exists(t, old) {
		t.Error("dropped with a message of an hour ago")
	}
	b.drop(t, store.Retention{For: 30 * time.Minute}, old)
}

func TestSegmentWithALateRowIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	leases := b.lease(t, "r")
	tx := b.begin(t)
	insert := "insert into %s (partition, id, topic, type, created_at) values (%s, clock_timestamp() - interval '5 hours')"
	if _, err := tx.Exec(t.Context(), fmt.Sprintf(insert, b.table("log"), "0, 'late', 't', 'x'")); err != nil {
		t.Fatal(err)
	}
	b.exec(t, fmt.Sprintf(insert, b.table("log"), "0, 'early', 't', 'x'"))
	old := b.nextSegment(t)
	b.deliverAll(t, "r", leases)
	// While the transaction is open its lock keeps the segment; once it has committed, its undelivered row does.
	if m := b.maintain(t, store.Retention{For: time.Hour}); !b.exists(t, old) || !strings.Contains(m.Deferred, old) {
		t.Fatalf("with an open writer: %+v", m)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b.maintain(t, store.Retention{For: time.Hour}); one[int64](t, b.pool, "select count(*) from "+b.table(old)+" where id = 'late'") != 1 {
		t.Fatal("a late row was dropped")
	}
	if n := b.deliverAll(t, "r", leases); n != 1 {
		t.Fatalf("%d late messages", n)
	}
	b.drop(t, store.Retention{For: time.Hour}, old)
}

// TestMaintainDoesNotWaitForLongTransactions: the segment is still emptied, and writers do not wait.
func TestMaintainDoesNotWaitForLongTransactions(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	old := b.past(t, 5, 10)
	b.deliverAll(t, "r", b.lease(t, "r"))
	tx, err := b.pool.BeginTx(t.Context(), pgx.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), fmt.Sprintf("insert into %s (partition, id, topic, type) values (0, 'open', 't', 'x')", b.table("log"))); err != nil {
		t.Fatal(err)
	}
	for filled := true; filled; filled = one[bool](t, b.pool, "select exists (select from "+b.table(old)+")") {
		if t.Context().Err() != nil {
			t.Fatal("the segment is not emptied")
		}
		b.maintain(t, store.Retention{For: time.Hour})
	}
	if m := b.maintain(t, store.Retention{For: time.Hour}); !b.exists(t, old) || !strings.Contains(m.Deferred, "drop segment") {
		t.Errorf("with an open writer: %+v", m)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.drop(t, store.Retention{For: time.Hour}, old)
}

func TestOldSegmentsGoAboveTheSizeLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	older, old := b.past(t, 6, 2000), b.past(t, 5, 2000)
	b.deliverAll(t, "r", b.lease(t, "r"))
	size := one[int64](t, b.pool, "select pg_total_relation_size($1::text::regclass)", b.table(old))
	b.drop(t, store.Retention{For: 240 * time.Hour, MaxBytes: size + size/2}, older)
	if !b.exists(t, old) {
		t.Error("the newer segment is gone too")
	}
}

// TestDetachedSegmentIsDroppedByTheNext: a process was killed between the two steps.
func TestDetachedSegmentIsDroppedByTheNext(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	empty, filled := b.past(t, 5, 0), b.past(t, 5, 10)
	for _, table := range []string{empty, filled} {
		b.exec(t, "alter table "+b.table("log")+" detach partition "+b.table(table))
	}
	b.drop(t, store.Retention{}, empty)
	if !b.exists(t, filled) {
		t.Error("one with messages was dropped")
	}
}

// TestClocksDoNotStopPublishing: a clock was ahead or behind when messages were written, or is now.
func TestClocksDoNotStopPublishing(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	leases := b.lease(t, "r")
	for i, skew := range []string{"10 years", "-10 years", "-1 day", "1 day"} {
		insert := fmt.Sprintf(`insert into %s (partition, id, topic, type, created_at) values (0, 'm', 't', 'x', clock_timestamp() + $1::text::interval)`, b.table("log"))
		b.exec(t, insert, skew)
		segment := b.next(t) >> 39
		if m := b.maintain(t, store.Retention{For: time.Hour}); m.Deferred != "" {
			t.Errorf("deferred: %s", m.Deferred)
		}
		if b.next(t)>>39 != segment+1 {
			t.Errorf("a message of %s from now: the segment goes on", skew)
		}
		b.exec(t, insert, skew)
		if n := b.deliverAll(t, "r", leases); n != 2 {
			t.Errorf("step %d: %d messages, want 2", i, n)
		}
	}
}

// TestTimeoutOfTheRoleDefersMaintenance: a statement_timeout that is not ours ends a statement that waits for a lock.
func TestTimeoutOfTheRoleDefersMaintenance(t *testing.T) {
	t.Parallel()
	notInShort(t)
	b := setup(t, postgres.Config{SegmentFor: time.Hour})
	old := b.past(t, 5, 10)
	b.deliverAll(t, "r", b.lease(t, "r"))
	limited := open(t, newPool(t, withParam(t, b.dsn, "statement_timeout", "3s"), 2), b.config)
	tx, err := b.pool.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "lock table "+b.table(old)+" in access exclusive mode")
	}
	if err != nil {
		t.Fatal(err)
	}
	m, err := limited.Maintain(t.Context(), store.Retention{For: time.Hour})
	if err != nil || !strings.Contains(m.Deferred, "drop segments: it took longer than it may") {
		t.Errorf("deferred %q, error %v", m.Deferred, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.drop(t, store.Retention{For: time.Hour}, old)
}
