//go:build !race

package postgres_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// TestTransactionIDIsAssignedBeforeSequence checks what the ceiling of a cursor relies on: however a row is inserted into the
// log, its transaction has its id before the row takes its sequence.
func TestTransactionIDIsAssignedBeforeSequence(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	ctx := t.Context()
	log := b.table("log")
	// The default of xid records the value of the sequence at the time it is evaluated.
	b.exec(t, fmt.Sprintf(`create table %[1]s.seen (xid xid8, last bigint);
create function %[1]s.note() returns xid8 language plpgsql volatile as $$ begin
	insert into %[1]s.seen values (pg_current_xact_id(), (select case when is_called then last_value else 0 end from %[2]s));
	return pg_current_xact_id();
end $$;
alter table %[3]s alter xid set default %[1]s.note()`, b.config.Schema, b.table("log_seq_seq"), log), pgx.QueryExecModeSimpleProtocol)

	ways := map[string]func(conn *pgx.Conn) error{
		"insert": execute(ctx, `insert into `+log+` (partition, id, topic, type) values (0, 'a', 't', 'x')`),
		"insert of several rows": execute(ctx, `insert into `+log+` (type, topic, id, partition)
			values ('x', 't', 'a', 0), ('x', 't', 'b', 0), ('x', 't', 'c', 0)`),
		"insert from a query": execute(ctx, `insert into `+log+` (id, partition, topic, type)
			select i::text, 0, 't', 'x' from generate_series(1, 5) as i order by i desc`),
		"insert from a set-returning function": execute(ctx, `insert into `+log+` (id, partition, topic, type)
			select generate_series(1, 5)::text, 0, 't', 'x'`),
		"copy": func(conn *pgx.Conn) error {
			_, err := conn.PgConn().CopyFrom(ctx, strings.NewReader("0\ta\tt\tx\n0\tb\tt\tx\n"),
				"copy "+log+" (partition, id, topic, type) from stdin")
			return err
		},
		"the function": execute(ctx, fmt.Sprintf(`select %s('t', 'k', 'x', '{}')`, b.table("publish"))),
	}
	for name, way := range ways {
		b.exec(t, "truncate "+b.config.Schema+".seen")
		conn, err := b.pool.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		before := one[int64](t, conn, "select case when is_called then last_value else 0 end from "+b.table("log_seq_seq"))
		if err := way(conn.Conn()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		conn.Release()
		rows := one[int64](t, b.pool, "select last_value from "+b.table("log_seq_seq")) - before
		noted := one[int64](t, b.pool, "select count(*) from "+b.config.Schema+".seen")
		// The n-th evaluation of xid comes before the n-th of seq.
		wrong := one[int64](t, b.pool, fmt.Sprintf(`select count(*) from (
			select last, row_number() over (order by ctid) as n from %s.seen) as s where last >= $1::int8 + n`, b.config.Schema), before)
		if rows == 0 || noted != rows || wrong != 0 {
			t.Errorf("%s: %d rows, %d transaction ids noted, %d of them after their sequence", name, rows, noted, wrong)
		}
	}
}

func execute(ctx context.Context, sql string) func(conn *pgx.Conn) error {
	return func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql)
		return err
	}
}

var buffersRead = regexp.MustCompile(`Buffers: shared ([a-z0-9= ]+)`)

// buffers returns how many buffers the topmost node of a plan touched.
func buffers(t *testing.T, plan string) int {
	t.Helper()
	m := buffersRead.FindStringSubmatch(plan)
	if m == nil {
		t.Fatalf("no buffers in the plan:\n%s", plan)
	}
	n := 0
	for part := range strings.FieldsSeq(m[1]) {
		if name, value, ok := strings.Cut(part, "="); ok && (name == "hit" || name == "read") {
			v, err := strconv.Atoi(value)
			if err != nil {
				t.Fatal(err)
			}
			n += v
		}
	}
	return n
}

// TestFetchCostsWhatItReturns checks, for a small and a large backlog over several segments, that a fetch from an old cursor,
// with a transaction open, touches about as many pages as it returns rows.
func TestFetchCostsWhatItReturns(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	ctx := t.Context()
	for range 4 {
		b.spread(t, 1_000)
		b.nextSegment(t)
	}
	lease := b.lease(t, "r")

	// A transaction that stays open and has written.
	open, err := b.pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := open.Exec(ctx, fmt.Sprintf("select %s('t', 'k', 'x', '{}')", b.table("publish"))); err != nil {
		t.Fatal(err)
	}
	req := store.FetchRequest{Limit: 10, MaxBytes: 8 << 20}
	for _, l := range lease {
		req.Partitions = append(req.Partitions, store.FetchPartition{LeaseRef: l.Ref(), After: l.Cursor})
	}
	// A cursor in the middle of the present messages; after a restart, many more have followed.
	batches, err := b.Fetch(ctx, "r", req)
	if err != nil {
		t.Fatal(err)
	}
	for i, batch := range batches {
		req.Partitions[i].After = batch.Next
	}
	for _, generic := range []bool{true, false} {
		b.spread(t, 1_000)
		small := b.explain(t, req, generic)
		b.spread(t, 60_000)
		large := b.explain(t, req, generic)
		for _, bad := range []string{"Seq Scan on " + "postrider_log", "JIT:"} {
			if strings.Contains(large, bad) {
				t.Errorf("generic %v: the plan has %q:\n%s", generic, bad, large)
			}
		}
		// 8 partitions × 10 rows, plus one descent into each segment's indexes per partition, one level deeper with more rows, plus
		// pages that no vacuum has visited yet on a busy server. Reading all rows would touch a thousand pages or more.
		if s, l := buffers(t, small), buffers(t, large); l > s+800 {
			t.Errorf("generic %v: a fetch from an old cursor touched %d pages, with 60,000 rows more %d", generic, s, l)
		}
	}
}

func (b *bundle) explain(t *testing.T, req store.FetchRequest, generic bool) string {
	t.Helper()
	plan, err := b.ExplainFetch(t.Context(), req, generic)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// spread writes n messages, 1,000 per transaction.
func (b *bundle) spread(t *testing.T, n int) {
	t.Helper()
	for range n / 1000 {
		b.exec(t, fmt.Sprintf(`insert into %s (partition, id, topic, key, type, payload)
			select i %% 8, gen_random_uuid()::text, 'orders', 'order/' || i, 'order.placed', 'payload'
			from generate_series(1, 1000) as i`, b.table("log")))
	}
}

// TestMaxBytesBoundsWhatIsRead: if rows are far larger than earlier ones, not all of them are read only to be discarded.
func TestMaxBytesBoundsWhatIsRead(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 2})
	insert := fmt.Sprintf(`insert into %s (partition, id, topic, type, payload)
		select i %% 2, i::text, 't', 'x', convert_to(repeat('x', $1::int4), 'UTF8') from generate_series(1, $2::int4) as i`, b.table("log"))
	b.exec(t, insert, 10, 3000)
	req := request(b.lease(t, "r"), 1000)
	req.MaxBytes = 1 << 20
	b.exec(t, insert, 100_000, 400)
	total, largest := 0, 0
	for more := true; more; {
		batches, err := b.Fetch(t.Context(), "r", req)
		if err != nil {
			t.Fatal(err)
		}
		bytes := 0
		more = false
		for _, batch := range batches {
			req.Partitions[batch.Partition].After = batch.Next
			more = more || batch.More
			total += len(batch.Entries)
			for _, r := range batch.Entries {
				bytes += r.Message.Size()
			}
		}
		largest = max(largest, bytes)
	}
	if total != 3400 || largest > 1<<20 {
		t.Errorf("%d messages, at most %d bytes at a time; want 3,400 and 1 MiB", total, largest)
	}
}

func TestRelayThatBeginsNowGetsTheVeryFirstMessage(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 1})
	req := acquire(0)
	req.FromNow = true
	leases, err := b.Acquire(t.Context(), "r", store.Owner{ID: "a"}, req)
	if err != nil {
		t.Fatal(err)
	}
	b.exec(t, fmt.Sprintf("select %s('t', 'k', 'x', '{}'::text)", b.table("publish")))
	if n := b.deliverAll(t, "r", leases); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
}

// request requests everything after the leases' cursors.
func request(leases []store.Lease, limit int) store.FetchRequest {
	req := store.FetchRequest{Limit: limit, MaxBytes: 64 << 20}
	for _, l := range leases {
		req.Partitions = append(req.Partitions, store.FetchPartition{LeaseRef: l.Ref(), After: l.Cursor})
	}
	return req
}

// advance fetches, moves the request forward, and returns how many messages each partition got.
func (b *bundle) advance(t *testing.T, req *store.FetchRequest) map[int]int {
	t.Helper()
	batches, err := b.Fetch(t.Context(), "r", *req)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[int]int)
	for _, batch := range batches {
		req.Partitions[batch.Partition].After = batch.Next
		got[batch.Partition] = len(batch.Entries)
	}
	return got
}

// TestBulkOfLateRowsKeepsNoOtherPartitionWaiting: a bulk of one partition commits late. A partition without late rows, and one
// whose late rows are all in the first page, get their fresh rows at once.
func TestBulkOfLateRowsKeepsNoOtherPartitionWaiting(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 3})
	ctx := t.Context()
	req := request(b.lease(t, "r"), 10)
	insert := fmt.Sprintf("insert into %s (partition, id, topic, type) select $2::int4, gen_random_uuid()::text, 't', 'x' from generate_series(1, $1::int4)", b.table("log"))
	bulk := b.begin(t)
	for _, part := range [][2]int{{3, 1}, {500, 0}} {
		if _, err := bulk.Exec(ctx, insert, part[0], part[1]); err != nil {
			t.Fatal(err)
		}
	}
	for p := range 3 {
		b.exec(t, insert, 1, p)
	}
	b.advance(t, &req)
	if err := bulk.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	for p := range 3 {
		b.exec(t, insert, 1, p)
	}
	if got := b.advance(t, &req); got[0] != 7 || got[1] != 4 || got[2] != 1 {
		t.Errorf("messages by partition: %v, want 7 late ones of the bulk, 3 late and a fresh one, a fresh one", got)
	}
	total := 7
	for range 100 {
		total += b.advance(t, &req)[0]
	}
	if total != 501 {
		t.Errorf("partition 0 got %d messages, want the bulk of 500 and one more", total)
	}
}

// TestLateRowsBeyondTheSnapshotAreReadByIndex: the bulk's transaction began after the last one that had completed.
func TestLateRowsBeyondTheSnapshotAreReadByIndex(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 1})
	ctx := t.Context()
	insert := fmt.Sprintf("insert into %s (partition, id, topic, type) select 0, gen_random_uuid()::text, 't', 'x' from generate_series(1, $1::int4)", b.table("log"))
	req := request(b.lease(t, "r"), 10)
	first, bulk := b.begin(t), b.begin(t)
	for _, step := range []struct {
		tx  pgx.Tx
		sql string
		n   []any
	}{{first, "select pg_current_xact_id()", nil}, {bulk, insert, []any{5000}}, {first, insert, []any{1}}} {
		if _, err := step.tx.Exec(ctx, step.sql, step.n...); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	b.advance(t, &req)
	if err := bulk.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if n := buffers(t, b.explain(t, req, true)); n > 100 {
		t.Errorf("a page of 10 late rows out of 5,000 touched %d pages", n)
	}
	if got := b.advance(t, &req); got[0] != 10 {
		t.Errorf("%d messages, want a page of 10", got[0])
	}
}

// TestPlanOfAnEmptyLogServesAFullOne: a plan is kept until the segment is analyzed again. While the segment is known to be empty,
// as after a nightly vacuum, an index that must be read from end to end is as good as any other.
func TestPlanOfAnEmptyLogServesAFullOne(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{})
	req := request(b.lease(t, "r"), 10)
	b.publish(t, "k") // a cursor at the beginning has no late rows to search for
	b.advance(t, &req)
	b.exec(t, "truncate "+b.table("log"))
	b.exec(t, "vacuum analyze "+b.table("log"))
	plan := b.explain(t, req, true)
	lines := strings.Split(plan, "\n")
	scans := 0
	for i, line := range lines[:len(lines)-1] {
		if strings.Contains(line, "Scan using") && strings.Contains(line, "log_") {
			scans++
			if cond := lines[i+1]; !strings.Contains(cond, "partition = ") && !strings.Contains(cond, "xid ") {
				t.Errorf("%s\nreads the index from end to end:\n%s", strings.TrimSpace(line), cond)
			}
		}
	}
	if scans == 0 {
		t.Errorf("the plan looks at no index of the log:\n%s", plan)
	}
}
