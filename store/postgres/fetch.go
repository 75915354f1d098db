package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

const (
	// assumedRowBytes is the assumed size of a row before any was read.
	assumedRowBytes = 4 << 10
	// overrun is how many times MaxBytes may be read off the wire in discarded rows before the statement is aborted and repeated
	// with a limit that fits the rows.
	overrun = 4
)

var errOverrun = errors.New("rows are far larger than assumed")

// Fetch implements store.Log: one round trip for all partitions, another one where a bulk of late rows begins, and another
// one to flush the rows found (see Config.DeliverAfterFlush). While a partition has late rows after a page, it gets no fresh ones.
func (s *Store) Fetch(ctx context.Context, name string, req store.FetchRequest) ([]store.Batch, error) {
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
	req    store.FetchRequest
	limit  int // rows requested, per group of late ones and per partition of fresh ones
	parts  []*partitionFetch
	byPart []*partitionFetch
	groups []*lateGroup

	snapshot, ceiling string
	unflushed         string // where the write-ahead log has to be flushed to before the rows are returned; "": it is
	now               time.Time
	bytes, rows       int // accepted
	// discarded bytes and rows were read off the wire but did not fit.
	discardedBytes, discardedRows int
}

// partitionFetch is the state of a fetch for one partition.
type partitionFetch struct {
	cursor  cursor
	lease   store.LeaseRef
	lost    bool
	group   *lateGroup // nil if it cannot have late rows
	batch   store.Batch
	fresh   []store.Entry
	seen    int      // fresh rows that arrived
	last    [3]int64 // by kind, the last row that arrived, to check the order
	full    bool     // MaxBytes is reached; no more rows are accepted
	lateCut bool     // a late row was not accepted
}

func newFetch(s *Store, name string, req store.FetchRequest, partitions int) (*fetch, error) {
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
		pf := &partitionFetch{cursor: c, lease: p.LeaseRef, batch: store.Batch{Partition: p.Partition}}
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

func (f *fetch) run(ctx context.Context) ([]store.Batch, error) {
	if err := f.read(ctx); err != nil {
		return nil, err
	}
	if err := f.findMoreLate(ctx); err != nil {
		return nil, err
	}
	if err := f.flush(ctx); err != nil {
		return nil, err
	}
	return f.batches(), nil
}

// read runs fetchSQL.
func (f *fetch) read(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results, err := implicit(ctx, f.store.pool, planSQL, func(b *pgx.Batch) {
		f.queueHolding(b)
		b.Queue(f.store.sql.fetch, f.args()...)
	})
	if err != nil {
		return err
	}
	defer results.Close()
	if err := f.checkHolding(results); err != nil {
		return err
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	d := newDecoder(rows)
	for d.next() {
		if err := f.row(d); err != nil {
			// Reading on would mean reading all remaining rows; a cancelled context closes the connection instead.
			cancel()
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if f.snapshot == "" {
		return errors.New("the result has no header")
	}
	f.learn()
	rows.Close()
	return results.Close()
}

// queueHolding queues the statement whose result checkHolding reads.
func (f *fetch) queueHolding(b *pgx.Batch) {
	leases := make([]store.LeaseRef, len(f.parts))
	for i, p := range f.parts {
		leases[i] = p.lease
	}
	partitions, tokens := leaseArgs(leases)
	b.Queue(f.store.sql.holding, f.relay, partitions, tokens)
}

// checkHolding marks the partitions whose lease does not hold.
func (f *fetch) checkHolding(results pgx.BatchResults) error {
	holding, err := readHolding(results)
	if err != nil {
		return err
	}
	for _, p := range f.parts {
		p.lost = p.lost || f.relay != "" && !holding[p.lease.Partition]
	}
	return nil
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
	if r := (store.Entry{Message: m, Err: fault}); kind == kindLate {
		p.batch.Entries = append(p.batch.Entries, r)
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
	f.snapshot, f.unflushed = d.string(3), d.string(4)
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

func (f *fetch) batches() []store.Batch {
	var out []store.Batch
	for _, p := range f.parts {
		if p.lost {
			out = append(out, store.Batch{Partition: p.batch.Partition, Lost: true})
			continue
		}
		before := p.cursor.snapshot
		f.finish(p)
		for i := range p.batch.Entries {
			if r := &p.batch.Entries[i]; !r.Message.DeliverAt.IsZero() {
				r.Delay = r.Message.DeliverAt.Sub(f.now)
			}
		}
		if len(p.batch.Entries) > 0 || p.batch.More || before != f.snapshot {
			out = append(out, p.batch)
		}
	}
	return out
}

// finish decides how far a partition's batch goes and which cursor follows it.
func (f *fetch) finish(p *partitionFetch) {
	c, b := p.cursor, &p.batch
	b.Late = len(b.Entries)
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
			c.page = b.Entries[b.Late-1].Message.Sequence
		}
		b.Next, b.More = c.encode(), true
	case c.upTo != "":
		// That was the last page; rows that its snapshot did not see come next.
		b.Next, b.More = cursor{position: c.position, snapshot: c.upTo, ceiling: c.ceiling}.encode(), true
	default:
		fresh := p.fresh[:min(len(p.fresh), max(f.req.Limit-b.Late, 0))]
		b.Entries = append(b.Entries, fresh...)
		next := cursor{position: c.position, snapshot: f.snapshot, ceiling: f.ceiling}
		if len(fresh) > 0 {
			next.position = fresh[len(fresh)-1].Message.Sequence
		}
		b.Next, b.More = next.encode(), p.seen >= f.limit || len(fresh) < p.seen
	}
}
