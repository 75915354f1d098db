package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/postgres"
)

// past attaches a segment that ended some hours ago and writes n messages to it.
func (b *bundle) past(t *testing.T, name string, hours, n int) {
	t.Helper()
	from := time.Now().UTC().Truncate(time.Hour).Add(-time.Duration(hours) * time.Hour)
	b.exec(t, fmt.Sprintf("create table %s partition of %s for values from ('%s') to ('%s')",
		b.table(name), b.table("log"), from.Format(time.RFC3339), from.Add(time.Hour).Format(time.RFC3339)))
	b.exec(t, fmt.Sprintf(`insert into %s (partition, id, topic, key, type, payload, created_at)
		select i %% 8, i::text, 'orders', 'order/' || i, 'order.placed', 'payload', '%s' from generate_series(1, %d) as i`,
		b.table("log"), from.Add(time.Minute).Format(time.RFC3339), n))
}

func (b *bundle) maintain(t *testing.T, r relay.Retention) relay.Maintained {
	t.Helper()
	m, err := b.Maintain(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (b *bundle) exists(t *testing.T, table string) bool {
	t.Helper()
	return one[bool](t, b.pool, "select to_regclass($1::text) is not null", b.table(table))
}

// deliverAll fetches and settles everything.
func (b *bundle) deliverAll(t *testing.T, name string, leases []relay.Lease) int {
	t.Helper()
	req := relay.FetchRequest{Limit: 1000, MaxBytes: 64 << 20}
	for _, l := range leases {
		req.Partitions = append(req.Partitions, relay.FetchPartition{LeaseRef: l.Ref(), After: l.Cursor})
	}
	batches, err := b.Fetch(t.Context(), name, req)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, batch := range batches {
		n += len(batch.Records)
		l := &leases[batch.Partition]
		l.Cursor = batch.Next
		l.Settled++
		settled, err := b.Settle(t.Context(), name, []relay.Settlement{{Partition: batch.Partition, Token: l.Token, Number: l.Settled,
			Moved: true, Cursor: batch.Next, DeliveredCount: int64(len(batch.Records))}})
		if err != nil || len(settled.Lost) > 0 {
			t.Fatal(settled, err)
		}
	}
	return n
}

func TestSegmentsAreCreatedAhead(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{SegmentFor: time.Minute})
	covered := one[time.Time](t, b.pool, `select max((regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \(''([^'']+)''\)'))[1]::timestamptz)
		from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = $1::text::regclass`, b.table("log"))
	if ahead := time.Until(covered); ahead < 80*time.Second {
		t.Errorf("the log is covered for %s", ahead)
	}
	before := one[int64](t, b.pool, "select count(*) from pg_inherits where inhparent = $1::text::regclass", b.table("log"))
	if m := b.maintain(t, relay.Retention{For: time.Hour}); m.Deferred != "" || m.Dropped != 0 {
		t.Errorf("maintained: %+v", m)
	}
	if after := one[int64](t, b.pool, "select count(*) from pg_inherits where inhparent = $1::text::regclass", b.table("log")); after > before+1 {
		t.Errorf("%d segments, then %d", before, after)
	}
}

// TestSegmentsWhateverTheSessionsSettings: the bounds of segments are read back in time zones whose abbreviation stands for
// another one too, and where a backslash in a string is an escape.
func TestSegmentsWhateverTheSessionsSettings(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]map[string]string{
		"zone by abbreviation": {"timezone": "Asia/Kolkata", "datestyle": "SQL, DMY"},
		"zone after the time":  {"timezone": "Asia/Shanghai", "datestyle": "Postgres, MDY"},
		"backslashes":          {"standard_conforming_strings": "off"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := dsn(t)
			for setting, value := range settings {
				dsn = withParam(t, dsn, setting, value)
			}
			b := setupOn(t, dsn, postgres.Config{SegmentFor: time.Hour})
			b.past(t, "log_old", 5, 10)
			b.deliverAll(t, "r", b.lease(t, "r"))
			for range 2 {
				if m := b.maintain(t, relay.Retention{For: time.Hour}); m.Deferred != "" {
					t.Errorf("deferred: %s", m.Deferred)
				}
			}
			if b.exists(t, "log_old") {
				t.Error("a segment that is past retention and delivered is still there")
			}
		})
	}
}

// TestSegmentBeginsBehindTheDefaultOnesRows: the clock was ahead when there was no segment.
func TestSegmentBeginsBehindTheDefaultOnesRows(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{SegmentFor: time.Minute})
	b.exec(t, fmt.Sprintf("insert into %s (partition, id, topic, type, created_at) values (0, 'future', 't', 'x', now() + interval '10 min')", b.table("log")))
	config := b.config
	config.SegmentFor = 20 * time.Minute
	wider := &bundle{Store: open(t, b.pool, config), pool: b.pool, config: config}
	if m := wider.maintain(t, relay.Retention{For: time.Hour}); m.Deferred != "" {
		t.Errorf("deferred: %s", m.Deferred)
	}
	b.exec(t, fmt.Sprintf("insert into %s (partition, id, topic, type, created_at) values (0, 'later', 't', 'x', now() + interval '15 min')", b.table("log")))
	if n := one[int64](t, b.pool, "select count(*) from "+b.table("log_default")); n != 1 {
		t.Errorf("%d rows in the default segment, want the one from before", n)
	}
}

func TestSegmentIsDroppedWhenEveryRelayHasDeliveredIt(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	b.past(t, "log_old", 5, 100)
	keep := relay.Retention{For: time.Hour}
	if b.maintain(t, keep); !b.exists(t, "log_old") {
		t.Fatal("dropped without any relay")
	}
	fast, slow := b.lease(t, "fast"), b.lease(t, "slow")
	if n := b.deliverAll(t, "fast", fast); n != 100 {
		t.Fatalf("%d messages", n)
	}
	if b.maintain(t, keep); one[int64](t, b.pool, "select count(*) from "+b.table("log_old")) != 100 {
		t.Fatal("dropped what one relay has not delivered")
	}
	b.deliverAll(t, "slow", slow)
	if b.maintain(t, relay.Retention{For: 24 * time.Hour}); !b.exists(t, "log_old") {
		t.Fatal("dropped before its time")
	}
	if m := b.maintain(t, keep); b.exists(t, "log_old") || m.Deferred != "" {
		t.Errorf("the segment is still there: %+v", m)
	}
}

func TestSegmentWithALateRowIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	leases := b.lease(t, "r")
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	from := time.Now().UTC().Truncate(time.Hour).Add(-5 * time.Hour)
	late := fmt.Sprintf("insert into %s (partition, id, topic, type, created_at) values (0, 'late', 't', 'x', '%s')", b.table("log"), from.Add(time.Minute).Format(time.RFC3339))
	if _, err := tx.Exec(t.Context(), "create table "+b.table("log_old")+" (like "+b.table("log")+")"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.past(t, "log_old", 5, 8)
	if tx, err = b.pool.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	b.exec(t, fmt.Sprintf("insert into %s (partition, id, topic, type) select i, i::text, 't', 'x' from generate_series(0, 7) as i", b.table("log")))
	b.deliverAll(t, "r", leases)
	// While the transaction is open its lock keeps the segment; once it has committed, its undelivered row does.
	if m := b.maintain(t, relay.Retention{For: time.Hour}); !b.exists(t, "log_old") || !strings.Contains(m.Deferred, "log_old") {
		t.Fatalf("with an open writer: %+v", m)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b.maintain(t, relay.Retention{For: time.Hour}); one[int64](t, b.pool, "select count(*) from "+b.table("log_old")+" where id = 'late'") != 1 {
		t.Fatal("a late row was dropped")
	}
	if n := b.deliverAll(t, "r", leases); n != 1 {
		t.Fatalf("%d late messages", n)
	}
	if b.maintain(t, relay.Retention{For: time.Hour}); b.exists(t, "log_old") {
		t.Error("the segment is still there")
	}
}

// TestMaintainDoesNotWaitForLongTransactions: the segment is emptied all the same, and writers are not kept waiting.
func TestMaintainDoesNotWaitForLongTransactions(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	b.past(t, "log_old", 5, 10)
	b.deliverAll(t, "r", b.lease(t, "r"))
	tx, err := b.pool.BeginTx(t.Context(), pgx.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), fmt.Sprintf("insert into %s (partition, id, topic, type) values (0, 'open', 't', 'x')", b.table("log"))); err != nil {
		t.Fatal(err)
	}
	if m := b.maintain(t, relay.Retention{For: time.Hour}); !b.exists(t, "log_old") || !strings.Contains(m.Deferred, "drop segment") {
		t.Errorf("with an open writer: %+v", m)
	}
	if n := one[int64](t, b.pool, "select count(*) from "+b.table("log_old")); n != 0 {
		t.Errorf("%d rows are left in the segment", n)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m := b.maintain(t, relay.Retention{For: time.Hour}); b.exists(t, "log_old") {
		t.Errorf("the segment is still there: %+v", m)
	}
}

func TestDefaultSegmentIsEmptied(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	b.exec(t, fmt.Sprintf("insert into %s (partition, id, topic, type, created_at) values (0, 'old', 't', 'x', now() - interval '3 days')", b.table("log")))
	// The first segment begins in some seconds; this one takes what is written until then.
	first := one[time.Time](t, b.pool, `select min((regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''([^'']+)''\)'))[1]::timestamptz)
		from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = $1::text::regclass`, b.table("log"))
	b.exec(t, fmt.Sprintf("create table %s partition of %s for values from ('%s') to ('%s')", b.table("log_present"), b.table("log"),
		first.Add(-time.Hour).Format(time.RFC3339), first.Format(time.RFC3339)))
	leases := b.lease(t, "r")
	if b.maintain(t, relay.Retention{For: time.Hour}); one[int64](t, b.pool, "select count(*) from "+b.table("log_default")) != 1 {
		t.Fatal("dropped before it was delivered")
	}
	b.deliverAll(t, "r", leases)
	if m := b.maintain(t, relay.Retention{For: time.Hour}); one[int64](t, b.pool, "select count(*) from "+b.table("log_default")) != 0 {
		t.Errorf("the default segment is not empty: %+v", m)
	}
}

func TestOldSegmentsGoAboveTheSizeLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	b.past(t, "log_older", 6, 2000)
	b.past(t, "log_old", 5, 2000)
	b.deliverAll(t, "r", b.lease(t, "r"))
	size := one[int64](t, b.pool, "select pg_total_relation_size($1::text::regclass)", b.table("log_old"))
	b.maintain(t, relay.Retention{For: 240 * time.Hour, MaxBytes: size + size/2})
	if b.exists(t, "log_older") || !b.exists(t, "log_old") {
		t.Errorf("older is there: %v, old is there: %v; want the older one gone", b.exists(t, "log_older"), b.exists(t, "log_old"))
	}
}

// uncover drops the segments, so that the default one takes everything.
func (b *bundle) uncover(t *testing.T) {
	t.Helper()
	for name := range strings.FieldsSeq(one[string](t, b.pool, `select coalesce(string_agg(c.relname, ' '), '') from pg_inherits i
		join pg_class c on c.oid = i.inhrelid where i.inhparent = $1::text::regclass and c.relname not like '%default'`, b.table("log"))) {
		b.exec(t, "drop table "+b.config.Schema+"."+name)
	}
}

// TestSegmentsFillTheGapBeforeOneOfTheFuture: the clock was far ahead for a moment, and a segment was made for that time.
func TestSegmentsFillTheGapBeforeOneOfTheFuture(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	b.uncover(t)
	far := time.Now().UTC().Truncate(time.Hour)
	for i, ahead := range []time.Duration{4 * time.Hour, 365 * 24 * time.Hour} {
		b.exec(t, fmt.Sprintf("create table %s partition of %s for values from ('%s') to ('%s')", b.table(fmt.Sprintf("log_far%d", i)), b.table("log"),
			far.Add(ahead).Format(time.RFC3339), far.Add(ahead+time.Hour).Format(time.RFC3339)))
	}
	if m := b.maintain(t, relay.Retention{For: time.Hour}); m.Deferred != "" {
		t.Errorf("deferred: %s", m.Deferred)
	}
	for _, ahead := range []string{"1 minute", "3 hours", "6 hours"} {
		b.exec(t, fmt.Sprintf("insert into %s (partition, id, topic, type, created_at) values (0, 'm', 't', 'x', now() + interval '%s')", b.table("log"), ahead))
	}
	if n := one[int64](t, b.pool, "select count(*) from "+b.table("log_default")); n != 0 {
		t.Errorf("%d of 3 rows are in the default segment", n)
	}
}

func TestMaintainSaysThatThePresentHasNoSegment(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	b.uncover(t)
	b.exec(t, fmt.Sprintf("insert into %s (partition, id, topic, type, created_at) values (0, 'future', 't', 'x', now() + interval '1 hour')", b.table("log")))
	if m := b.maintain(t, relay.Retention{For: time.Hour}); !strings.Contains(m.Deferred, "default segment") {
		t.Errorf("deferred: %q", m.Deferred)
	}
}
