package mysqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// messageColumns are the columns of stored.Append, in its order.
const messageColumns = `id, topic, message_key, type, source, subject, tenant, message_time, schema_version, aggregate_version,
	content_type, headers, correlation_id, causation_id, payload, available_at, created_at`

const (
	// lateLimit is the least number of rows that a fetch reads in gaps; with fewer, rows of other partitions could use it up.
	lateLimit = 256
	// assumedRowBytes is the assumed size of a row before any row was read.
	assumedRowBytes = 4 << 10
	// maxOverrun limits the rows that are read and discarded, in multiples of MaxBytes; beyond that the fetch drops the
	// connection.
	maxOverrun = 4
)

// The kinds of rows in a fetch. The kind of a fresh row is kindFresh plus the number of its group.
const (
	kindLease = -2 // a valid lease
	kindEnd   = -1 // the last known sequence
	kindClock = 0
	kindLate  = 1
	kindFresh = 2
)

const (
	fetchClockSQL = `SELECT 0, 0, {now}, ` + noColumns
	noColumns     = `'', '', '', '', '', '', '', 0, 0, 0, '', '', '', '', '', 0, 0`
	fetchLeaseSQL = ` UNION ALL (SELECT -2, partition_id, 0, ` + noColumns + ` FROM {prefix}cursors
		WHERE relay = ? AND owner <> '' AND incarnation = {present} AND (%s))`
	leaseTerm   = `partition_id = ? AND token = ?`
	fetchEndSQL = ` UNION ALL (SELECT -1, 0, GREATEST((SELECT value FROM {prefix}meta WHERE name = 'floor'),
		COALESCE((SELECT MAX(seq) FROM {prefix}log), 0)), ` + noColumns + `)`
	fetchLateSQL  = ` UNION ALL (SELECT 1, partition_id, seq, ` + messageColumns + ` FROM {prefix}log WHERE %s ORDER BY seq LIMIT %d)`
	fetchFreshSQL = ` UNION ALL (SELECT %d, partition_id, seq, %s FROM {prefix}log WHERE seq > %d ORDER BY seq LIMIT %d)`
)

// pace records how much of a fetch was used, for the size of the next one.
type pace struct {
	rows     atomic.Int64 // rows to read at a time; 0: as many as asked for
	rowBytes atomic.Int64
}

// fetch is a fetch in progress. All of it is one statement, so it sees one state of the database: a sequence that is missing in
// it was missing when the rows after it were visible. On MariaDB that takes leaveOutOvertaken, too.
type fetch struct {
	s       *Store
	name    string // of the relay; "" to read the log without a lease
	req     store.FetchRequest
	holds   map[int]bool      // partitions whose leases are valid
	known   int64             // the last known sequence
	parts   []*partitionFetch // by position
	byID    map[int]*partitionFetch
	groups  []*freshGroup
	late    gaps // where to look for late rows
	limit   int  // of rows in each group
	now     int64
	room    stored.Budget
	skipped int // bytes read and discarded
	size    int // bytes of rows, for learn
	rows    int

	found    []int64 // sequences that were found in gaps
	lateRows int
	lateCut  bool // late rows were left out: no fresh row may overtake them
	overrun  bool // not all rows were read
}

// partitionFetch is what a fetch reads of one partition.
type partitionFetch struct {
	id    int
	after store.Cursor
	gaps  gaps
	group *freshGroup
	batch store.Batch
	fresh []store.Entry
}

// freshGroup is a group of partitions whose positions are close together. They are read together, since only the rows of all
// partitions show which sequences are missing.
type freshGroup struct {
	number int
	from   int64 // the first position
	end    int64 // the last sequence that was used
	gaps   gaps  // found while reading
	old    gaps  // those of them followed by an old row
	rows   int
	used   int  // rows before the cut
	cut    bool // a row did not fit: the group ends before it
}

// Fetch implements store.Log. It is one round trip; one more on MariaDB if a sequence is missing; and more if there are
// gaps to close, which only a named relay does.
func (s *Store) Fetch(ctx context.Context, name string, req store.FetchRequest) ([]store.Batch, error) {
	f, err := s.newFetch(name, req)
	if err != nil || len(req.Partitions) == 0 || len(f.parts) == 0 && name == "" {
		return nil, s.cfg.explain("fetch", err)
	}
	if err := f.read(ctx); err != nil {
		return nil, s.cfg.explain("fetch", err)
	}
	f.dropLost()
	if err := f.leaveOutOvertaken(ctx); err != nil {
		return nil, s.cfg.explain("fetch", err)
	}
	f.learn()
	f.finish()
	if name != "" { // without a name, it only reads
		if err := f.closeGaps(ctx); err != nil {
			return nil, s.cfg.explain("close gaps", err)
		}
	}
	return f.result(), nil
}

func (s *Store) newFetch(name string, req store.FetchRequest) (*fetch, error) {
	f := &fetch{s: s, name: name, req: req, holds: make(map[int]bool), room: stored.Budget{Left: req.MaxBytes}, byID: make(map[int]*partitionFetch, len(req.Partitions))}
	for _, p := range req.Partitions {
		if err := s.checkPartition(p.Partition); err != nil {
			return nil, err
		}
		missing, err := parseGaps(p.After.Snapshot)
		if err != nil {
			return nil, fmt.Errorf("partition %d: %w", p.Partition, err)
		}
		pf := &partitionFetch{id: p.Partition, after: p.After, gaps: missing.upTo(p.After.Position)}
		pf.batch.Partition = p.Partition
		f.parts = append(f.parts, pf)
		f.byID[p.Partition] = pf
		f.late = f.late.merge(pf.gaps)
	}
	slices.SortFunc(f.parts, func(a, b *partitionFetch) int { return cmp.Compare(a.after.Position, b.after.Position) })
	f.limit = req.Limit * max(len(f.parts), 1)
	if rows := int(s.reading.rows.Load()); rows > 0 {
		f.limit = max(min(f.limit, rows), req.Limit)
	}
	rowBytes := cmp.Or(int(s.reading.rowBytes.Load()), assumedRowBytes)
	f.limit = min(f.limit, req.MaxBytes/rowBytes+1)
	for _, p := range f.parts {
		last := len(f.groups) - 1
		if last < 0 || p.after.Position-f.groups[last].from > int64(f.limit) {
			f.groups = append(f.groups, &freshGroup{number: last + 1, from: p.after.Position, end: p.after.Position})
			last++
		}
		p.group = f.groups[last]
	}
	return f, nil
}

// statement reads the clock, then late rows, then fresh rows by group. It reads payloads only of the requested
// partitions.
func (f *fetch) statement() string {
	var b strings.Builder
	b.WriteString(fetchClockSQL)
	if f.name != "" {
		terms := make([]string, len(f.req.Partitions))
		for i, p := range f.req.Partitions {
			terms[i] = render(leaseTerm, []any{p.Partition, p.Token})
		}
		b.WriteString(strings.Replace(render(fetchLeaseSQL, []any{f.name}), `%s`, strings.Join(terms, ` OR `), 1) + fetchEndSQL)
	}
	if len(f.late) > 0 {
		fmt.Fprintf(&b, fetchLateSQL, f.late.condition(`seq`), f.lateLimit())
	}
	columns := messageColumns
	if len(f.parts) < f.s.number() {
		var ids []int
		for _, p := range f.parts {
			ids = append(ids, p.id)
		}
		columns = strings.Replace(columns, `payload`, render(`IF(partition_id IN ?, payload, '')`, []any{ids}), 1)
	}
	for _, g := range f.groups {
		fmt.Fprintf(&b, fetchFreshSQL, kindFresh+g.number, columns, g.from, f.limit)
	}
	return f.s.names.Replace(b.String())
}

func (f *fetch) lateLimit() int { return max(f.req.Limit, lateLimit) }

func (f *fetch) read(ctx context.Context) error {
	ctx, closeRead := context.WithCancel(ctx)
	defer closeRead()
	rows, err := f.s.db.QueryContext(ctx, f.statement())
	if err != nil {
		return err
	}
	defer rows.Close()
	var kind, partition int
	var seq int64
	row, last := stored.NewRow(&kind, &partition, &seq), make(map[int]int64)
	for rows.Next() {
		if err := rows.Scan(row.Dest()...); err != nil {
			return err
		}
		switch kind {
		case kindClock:
			f.now = seq
			continue
		case kindEnd:
			f.known = seq
			continue
		case kindLease:
			f.holds[partition] = true
			continue
		}
		if seq <= last[kind] {
			return fmt.Errorf("row %d came after row %d", seq, last[kind])
		}
		last[kind] = seq
		f.take(kind, partition, seq, row)
		if f.skipped > maxOverrun*f.req.MaxBytes {
			closeRead() // closes the connection instead of reading the remaining rows
			f.overrun = true
			return nil
		}
	}
	return rows.Err()
}

func (f *fetch) take(kind, partition int, seq int64, row *stored.Row) {
	m, err := row.Message(seq)
	size := m.Size()
	f.rows++
	f.size += size
	p := f.byID[partition]
	rec := store.Entry{Message: m, Err: err}
	if kind == kindLate {
		f.takeLate(p, seq, size, rec)
		return
	}
	g := f.groups[kind-kindFresh]
	g.rows++
	if g.cut {
		f.skipped += size
		return
	}
	if p != nil && p.group == g && seq > p.after.Position {
		if len(p.fresh) == f.req.Limit || !f.room.Take(size) {
			g.cut = true
			f.skipped += size
			return
		}
		p.fresh = append(p.fresh, rec)
	}
	if seq > g.end+1 {
		missing := span{g.end + 1, seq - 1}
		g.gaps = g.gaps.add(missing)
		if m.CreatedAt.UnixMicro() < f.now-f.s.cfg.CloseGapAfter.Microseconds() {
			g.old = g.old.add(missing)
		}
	}
	g.end = seq
	g.used++
}

// takeLate handles a row that was found in a gap. Its own partition delivers it if it was missing there; for all others it is no
// longer missing.
func (f *fetch) takeLate(p *partitionFetch, seq int64, size int, rec store.Entry) {
	f.lateRows++
	if f.lateCut {
		f.skipped += size
		return
	}
	if p != nil && p.gaps.contains(seq) {
		if len(p.batch.Entries) == f.req.Limit || !f.room.Take(size) {
			f.lateCut = true
			f.skipped += size
			return
		}
		p.batch.Entries = append(p.batch.Entries, rec)
	}
	f.found = append(f.found, seq)
}

// learn records the size of rows and how many were used. If a group was cut, the next fetch reads a quarter more than this one
// used; otherwise, if a group reached its limit, twice that limit.
func (f *fetch) learn() {
	pace := &f.s.reading
	if f.rows > 0 {
		seen, assumed := int64(f.size/f.rows)+1, pace.rowBytes.Load()
		if seen < assumed {
			seen = (7*assumed + seen) / 8
		}
		pace.rowBytes.Store(seen)
	}
	used, cut, full := 0, false, false
	for _, g := range f.groups {
		used, cut, full = max(used, g.used), cut || g.cut, full || g.rows == f.limit
	}
	switch {
	case cut:
		pace.rows.Store(int64(max(used*5/4, 1)))
	case full:
		pace.rows.Store(int64(2 * f.limit))
	}
}

// finish builds the batches. While late rows are left out, there are no fresh ones.
func (f *fetch) finish() {
	f.lateCut = f.lateCut || f.lateRows == f.lateLimit()
	for _, p := range f.parts {
		b, g := &p.batch, p.group
		b.Late = len(b.Entries)
		p.gaps = p.gaps.without(f.found)
		position := p.after.Position
		if f.lateCut {
			b.More = true
		} else {
			fresh := p.fresh[:min(len(p.fresh), f.req.Limit-b.Late)]
			b.Entries = append(b.Entries, fresh...)
			switch {
			case len(fresh) < len(p.fresh) && len(fresh) > 0:
				position = fresh[len(fresh)-1].Message.Sequence
			case len(fresh) == len(p.fresh):
				position = max(position, g.end)
			}
			p.gaps = slices.Concat(p.gaps, g.gaps.beyond(p.after.Position).upTo(position))
			b.More = g.cut || g.rows == f.limit || len(fresh) < len(p.fresh) || f.overrun
		}
		b.Next.Position = position
		for i := range b.Entries {
			if at := b.Entries[i].Message.DeliverAt; !at.IsZero() {
				b.Entries[i].Delay = stored.Delay(at.UnixMicro(), f.now)
			}
		}
	}
}

// dropLost removes partitions whose lease is not valid, or whose cursor is beyond the last known sequence: the server has lost
// data.
func (f *fetch) dropLost() {
	f.parts = slices.DeleteFunc(f.parts, func(p *partitionFetch) bool { return f.lost(p.id, p.after.Position) })
}

func (f *fetch) lost(partition int, position int64) bool {
	return f.name != "" && (!f.holds[partition] || position > f.known)
}

// result returns lost partitions and the batches that have something new.
func (f *fetch) result() []store.Batch {
	var out []store.Batch
	for _, p := range f.req.Partitions {
		if f.lost(p.Partition, p.After.Position) {
			out = append(out, store.Batch{Partition: p.Partition, Lost: true})
		}
	}
	for _, p := range f.parts {
		p.batch.Next.Snapshot = p.gaps.encode()
		if len(p.batch.Entries) > 0 || p.batch.More || p.batch.Next != p.after {
			out = append(out, p.batch)
		}
	}
	return out
}

func (s *Store) checkPartition(p int) error {
	if p < 0 || p >= s.number() {
		return fmt.Errorf("there is no partition %d, the outbox has %d", p, s.number())
	}
	return nil
}
