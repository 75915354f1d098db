package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
)

// planSQL precedes a fetch, in the same round trip and for its transaction only. The desired plan is known and does not depend on
// the parameters: index scans, planned once. Left alone, the planner compiles the statement (JIT) because a log is large, or
// scans a segment that was empty at planning time.
const planSQL = `select ` + formatSQL + `, set_config('jit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true),
	set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)`

// fetchSQL returns a header (kind 0), late rows (kind 1) and fresh rows (kind 2), all under the one snapshot of the statement.
// The package comment explains why nothing is skipped.
//
// Parameters:
//
//   - $1 partitions and $2 positions, for fresh rows;
//   - $3 limit, of late rows per group and of fresh rows per partition;
//   - for late rows, groups of partitions with the same snapshot: $4 snapshot, $5 upTo, $6 page, $7 positions as an array by
//     partition (null: not in the group), $8 the ids between the snapshot's xmax and the ceiling, or $9 the ceiling if they are
//     too many to list, $10 the largest position.
//
// The header's seq is how many transaction ids were assigned beyond its snapshot. It is computed while the statement runs, hence
// after the snapshot was taken.
//
// Late rows of a transaction are found by the index (xid, seq); the index is not read for transactions that are still running.
// Transactions between the snapshot's xmax and the ceiling were running too; usually they are few and are listed like the others.
// If they are too many (savepoints take ids as well), they are a range of the index, and its rows are sorted for each page. The
// ceiling is never null, so it always bounds the range. In this branch seq is compared as seq + 0, which no index serves:
// otherwise a plan made when a segment had just been vacuumed empty could choose the index (partition, seq), which was then just
// as good, and would keep reading all of that index once the segment is full.
const fetchSQL = `
select 0::int2 as kind, 0::int2 as partition, age(pg_snapshot_xmax(pg_current_snapshot())::xid)::int8 as seq,
	pg_current_snapshot()::text as id, null::text as topic, null::text as key, null::text as type, null::text as source,
	null::text as subject, null::text as tenant, null::timestamptz as message_time, null::int4 as schema_version,
	null::int8 as aggregate_version, null::text as content_type, null::jsonb as headers, null::text as correlation_id,
	null::text as causation_id, null::bytea as payload, null::timestamptz as available_at, clock_timestamp() as created_at
union all
select 1::int2, late.* from (
	select snapshot::pg_snapshot, coalesce(nullif(upto, '')::pg_snapshot, pg_current_snapshot()) as upto, page,
		positions::int8[], listed::xid8[], coalesce(nullif(ceiling, ''), '18446744073709551615')::xid8 as ceiling, last
	from unnest($4::text[], $5::text[], $6::int8[], $7::text[], $8::text[], $9::text[], $10::int8[])
		as g (snapshot, upto, page, positions, listed, ceiling, last)
) as g cross join lateral (
	select * from (
		(select r.* from (select pg_snapshot_xip(g.snapshot) as x union all select unnest(g.listed)) as t cross join lateral (
			select partition, {message} from {log} l
			where l.xid = t.x and l.seq > g.page and l.seq <= g.last and l.seq <= g.positions[l.partition + 1]
			order by l.seq limit $3::int8) as r
		where pg_visible_in_snapshot(t.x, g.upto))
		union all
		(select partition, {message} from {log} l
		where l.xid >= pg_snapshot_xmax(g.snapshot) and l.xid < g.ceiling
			and l.seq + 0 > g.page and l.seq + 0 <= g.positions[l.partition + 1]
			and pg_visible_in_snapshot(l.xid, g.upto)
		order by l.seq limit $3::int8)
	) as l order by seq limit $3::int8
) as late
union all
select 2::int2, fresh.* from unnest($1::int2[], $2::int8[]) as f (partition, position) cross join lateral (
	select l.partition, {message} from {log} l
	where l.partition = f.partition and l.seq > f.position order by l.seq limit $3::int8
) as fresh`

const (
	kindHeader = 0
	kindLate   = 1
	kindFresh  = 2
)

const (
	// assumedRowBytes is the assumed size of a row before any was read.
	assumedRowBytes = 4 << 10
	// overrun is how many times MaxBytes may be read off the wire in discarded rows before the statement is aborted and repeated
	// with a limit that fits the rows.
	overrun = 4
)

var errOverrun = errors.New("rows are far larger than assumed")

// Fetch implements relay.LogStore: one round trip for all partitions, and another one where a bulk of late rows begins. While a
// partition has late rows after a page, it gets no fresh ones.
func (s *Store) Fetch(ctx context.Context, name string, req relay.FetchRequest) ([]relay.Batch, error) {
	n, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	for {
		f, err := newFetch(s, name, req, n)
		if err != nil {
			return nil, err
		}
		if len(f.parts) == 0 {
			return nil, nil
		}
		batches, err := f.run(ctx)
		if errors.Is(err, errOverrun) {
			continue
		}
		return batches, translate("fetch", err)
	}
}

// fetch is one run of fetchSQL.
type fetch struct {
	store  *Store
	relay  string
	req    relay.FetchRequest
	limit  int // rows requested, per group of late ones and per partition of fresh ones
	parts  []*partitionFetch
	byPart []*partitionFetch
	groups []*lateGroup

	snapshot, ceiling string
	now               time.Time
	bytes, rows       int // accepted
	// discarded bytes and rows were read off the wire but did not fit.
	discardedBytes, discardedRows int
}

// partitionFetch is the state of a fetch for one partition.
type partitionFetch struct {
	cursor  cursor
	lease   relay.LeaseRef
	lost    bool
	group   *lateGroup // nil if it cannot have late rows
	batch   relay.Batch
	fresh   []relay.Record
	seen    int      // fresh rows that arrived
	last    [3]int64 // by kind, the last row that arrived, to check the order
	full    bool     // MaxBytes is reached; no more rows are accepted
	lateCut bool     // a late row was not accepted
}

func newFetch(s *Store, name string, req relay.FetchRequest, partitions int) (*fetch, error) {
	f := &fetch{store: s, relay: name, req: req, byPart: make([]*partitionFetch, partitions)}
	groups := make(map[string]*lateGroup)
	for _, p := range req.Partitions {
		if p.Partition < 0 || p.Partition >= partitions {
			return nil, fmt.Errorf("fetch: there is no partition %d, the outbox has %d", p.Partition, partitions)
		}
		c, err := parseCursor(p.After)
		if err != nil {
			return nil, fmt.Errorf("fetch partition %d: %w", p.Partition, err)
		}
		if c.position == inbox.EndOfLog { // a consumer's cursor: nothing is late or fresh there, and it stays
			continue
		}
		pf := &partitionFetch{cursor: c, lease: p.LeaseRef, batch: relay.Batch{Partition: p.Partition}}
		f.parts = append(f.parts, pf)
		f.byPart[p.Partition] = pf
		if c.position == 0 {
			continue
		}
		g := groups[p.After.Snapshot]
		if g == nil {
			if g, err = newLateGroup(c, partitions); err != nil {
				return nil, fmt.Errorf("fetch partition %d: %w", p.Partition, err)
			}
			groups[p.After.Snapshot] = g
			f.groups = append(f.groups, g)
		}
		g.positions[p.Partition] = strconv.FormatInt(c.position, 10)
		g.last = max(g.last, c.position)
		g.size++
		pf.group = g
	}
	rowBytes := max(s.rowBytes.Load(), 1)
	f.limit = min(req.Limit, req.MaxBytes/int(rowBytes)/max(len(f.parts), 1)+1)
	return f, nil
}

func (f *fetch) args() []any {
	var partitions []int16
	var positions, pages, lasts []int64
	var snapshots, upTos, groupPositions, listed, ceilings []string
	for _, p := range f.parts {
		if p.cursor.upTo == "" {
			partitions = append(partitions, int16(p.batch.Partition))
			positions = append(positions, p.cursor.position)
		}
	}
	for _, g := range f.groups {
		snapshots = append(snapshots, g.cursor.snapshot)
		upTos = append(upTos, g.cursor.upTo)
		pages = append(pages, g.cursor.page)
		groupPositions = append(groupPositions, arrayOf(g.positions))
		listed = append(listed, arrayOf(g.listed))
		ceilings = append(ceilings, g.ceiling)
		lasts = append(lasts, g.last)
	}
	return []any{list(partitions), list(positions), int64(f.limit),
		list(snapshots), list(upTos), list(pages), list(groupPositions), list(listed), list(ceilings), list(lasts)}
}

// arrayOf writes numbers as a PostgreSQL array literal.
func arrayOf(numbers []string) string { return "{" + strings.Join(numbers, ",") + "}" }

// list returns s as an array parameter: a nil slice would be null.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func (f *fetch) run(ctx context.Context) ([]relay.Batch, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	leases := make([]relay.LeaseRef, len(f.parts))
	for i, p := range f.parts {
		leases[i] = p.lease
	}
	partitions, tokens := leaseArgs(leases)
	results, err := implicit(ctx, f.store.pool, planSQL, func(b *pgx.Batch) {
		b.Queue(f.store.sql.holding, f.relay, partitions, tokens)
		b.Queue(f.store.sql.fetch, f.args()...)
	})
	if err != nil {
		return nil, err
	}
	defer results.Close()
	holding, err := readHolding(results)
	if err != nil {
		return nil, err
	}
	for _, p := range f.parts {
		p.lost = f.relay != "" && !holding[p.lease.Partition]
	}
	rows, err := results.Query()
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	d := newDecoder(rows)
	for d.next() {
		if err := f.row(d); err != nil {
			// Reading on would mean reading all remaining rows; a cancelled context closes the connection instead.
			cancel()
			return nil, err
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if f.snapshot == "" {
		return nil, errors.New("the result has no header")
	}
	f.learn()
	rows.Close()
	if err := results.Close(); err != nil {
		return nil, err
	}
	if err := f.lookBehind(ctx); err != nil {
		return nil, err
	}
	return f.batches(), nil
}

// learn records the row size for the limit of the next fetch: at once if rows are larger than assumed, gradually if smaller.
func (f *fetch) learn() {
	rows := f.rows + f.discardedRows
	if rows == 0 {
		return
	}
	seen, assumed := int64((f.bytes+f.discardedBytes)/rows), f.store.rowBytes.Load()
	if seen < assumed {
		seen = (7*assumed + seen) / 8
	}
	f.store.rowBytes.Store(seen)
}

func (f *fetch) row(d *decoder) error {
	kind, err := d.int(0)
	if err != nil {
		return err
	}
	if kind == kindHeader {
		return f.header(d)
	}
	partition, err := d.int(1)
	if err != nil {
		return err
	}
	seq, err := d.int(2)
	if err != nil {
		return err
	}
	p := f.byPart[partition]
	if seq <= p.last[kind] {
		return fmt.Errorf("partition %d: row %d came after row %d", partition, seq, p.last[kind])
	}
	p.last[kind] = seq
	if kind == kindLate {
		p.group.seen++
		p.group.end = max(p.group.end, seq)
	} else {
		p.seen++
	}
	if ok, err := f.accept(p, d.size(2)); err != nil || !ok {
		p.lateCut = p.lateCut || kind == kindLate
		return err
	}
	m, fault, err := d.message(2)
	if err != nil {
		return fmt.Errorf("partition %d: message %d: %w", partition, seq, err)
	}
	if r := (relay.Record{Message: m, Err: fault}); kind == kindLate {
		p.batch.Records = append(p.batch.Records, r)
	} else {
		p.fresh = append(p.fresh, r)
	}
	return nil
}

// accept reports whether a row of this size still fits. The first row always does; once a row does not fit, no later row of its
// partition does.
func (f *fetch) accept(p *partitionFetch, size int) (bool, error) {
	if !p.full && (f.rows == 0 || f.bytes+size <= f.req.MaxBytes) {
		f.rows++
		f.bytes += size
		return true, nil
	}
	p.full = true
	f.discardedRows++
	f.discardedBytes += size
	if f.limit > 1 && f.discardedBytes > overrun*f.req.MaxBytes {
		assumed := f.store.rowBytes.Load()
		f.learn()
		f.store.rowBytes.Store(max(f.store.rowBytes.Load(), 2*assumed)) // so that the repetition ends
		return false, errOverrun
	}
	return false, nil
}

func (f *fetch) header(d *decoder) error {
	f.snapshot = d.string(3)
	xmax, err := snapshotXmax(f.snapshot)
	if err != nil {
		return err
	}
	age, err := d.int(2)
	if err != nil {
		return err
	}
	for _, p := range f.parts { // a cursor that has seen more than the server has issued dates from before a crash
		if before, err := snapshotXmax(p.cursor.snapshot); err != nil {
			return err
		} else if before > xmax && f.relay != "" {
			p.lost = true
		}
	}
	f.ceiling = strconv.FormatUint(xmax+uint64(age), 10)
	f.now, err = d.time(2 + messageColumnCount - 1)
	return err
}

func (f *fetch) batches() []relay.Batch {
	var out []relay.Batch
	for _, p := range f.parts {
		if p.lost {
			out = append(out, relay.Batch{Partition: p.batch.Partition, Lost: true})
			continue
		}
		before := p.cursor.snapshot
		f.finish(p)
		for i := range p.batch.Records {
			if r := &p.batch.Records[i]; !r.Message.DeliverAt.IsZero() {
				r.Delay = r.Message.DeliverAt.Sub(f.now)
			}
		}
		if len(p.batch.Records) > 0 || p.batch.More || before != f.snapshot {
			out = append(out, p.batch)
		}
	}
	return out
}

// finish decides how far a partition's batch goes and which cursor follows it.
func (f *fetch) finish(p *partitionFetch) {
	c, b := p.cursor, &p.batch
	b.Late = len(b.Records)
	lateFull := p.group != nil && p.group.more(b.Partition, f.limit)
	switch {
	case lateFull || p.lateCut:
		// The page ends within the late rows. The next page continues after it, under the same snapshot.
		if c.upTo == "" {
			c.upTo = f.snapshot
		}
		switch {
		case !p.lateCut:
			c.page = p.group.end
		case b.Late > 0:
			c.page = b.Records[b.Late-1].Message.Sequence
		}
		b.Next, b.More = c.encode(), true
	case c.upTo != "":
		// That was the last page; rows that its snapshot did not see come next.
		b.Next, b.More = cursor{position: c.position, snapshot: c.upTo, ceiling: c.ceiling}.encode(), true
	default:
		fresh := p.fresh[:min(len(p.fresh), max(f.req.Limit-b.Late, 0))]
		b.Records = append(b.Records, fresh...)
		next := cursor{position: c.position, snapshot: f.snapshot, ceiling: f.ceiling}
		if len(fresh) > 0 {
			next.position = fresh[len(fresh)-1].Message.Sequence
		}
		b.Next, b.More = next.encode(), p.seen >= f.limit || len(fresh) < p.seen
	}
}
