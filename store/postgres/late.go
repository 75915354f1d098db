package postgres

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// lateGroup is a set of partitions whose cursors differ only in position; their late rows are read together.
type lateGroup struct {
	cursor    cursor
	size      int // partitions
	positions []string
	last      int64
	listed    []string // ids from the snapshot's xmax to below the ceiling
	ceiling   string   // of those that are not listed; the snapshot's xmax if there are none
	seen      int      // late rows that arrived
	end       int64    // the sequence of the last of them
	// further has the partitions with late rows after the page; nil if not known.
	further map[int]bool
}

// more reports whether a partition of the group may have late rows after the page.
func (g *lateGroup) more(partition, limit int) bool {
	return g.seen >= limit && (g.further == nil || g.further[partition])
}

// maxListed is how many transactions beyond a snapshot are looked up individually.
const maxListed = 1000

// newLateGroup returns a group without partitions.
func newLateGroup(c cursor, partitions int) (*lateGroup, error) {
	g := &lateGroup{cursor: c, positions: make([]string, partitions), ceiling: c.ceiling}
	for i := range g.positions {
		g.positions[i] = "NULL"
	}
	xmax, err := snapshotXmax(c.snapshot)
	if err != nil || c.ceiling == "" {
		return g, err
	}
	ceiling, err := strconv.ParseUint(c.ceiling, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("ceiling %q: %w", c.ceiling, err)
	}
	if ceiling > xmax+maxListed {
		return g, nil
	}
	g.ceiling = strconv.FormatUint(xmax, 10)
	for id := xmax; id < ceiling; id++ {
		g.listed = append(g.listed, strconv.FormatUint(id, 10))
	}
	return g, nil
}

// moreLateSQL returns the partitions of a group that have late rows after its page. It reads all of these rows, once per bulk:
// $1 snapshot, $2 upTo, $3 page, $4 positions, $5 listed, $6 ceiling, $7 the largest position; see fetchSQL.
const moreLateSQL = `
select distinct partition::int4 from (
	select l.partition
	from (select pg_snapshot_xip($1::text::pg_snapshot) as x union all select unnest($5::text::xid8[])) as t
	cross join lateral (
		select partition from {log} l
		where l.xid = t.x and l.seq > $3::int8 and l.seq <= $7::int8 and l.seq <= ($4::text::int8[])[l.partition + 1] offset 0) as l
	where pg_visible_in_snapshot(t.x, $2::text::pg_snapshot)
	union all
	select l.partition from {log} l
	where l.xid >= pg_snapshot_xmax($1::text::pg_snapshot)
		and l.xid < coalesce(nullif($6::text, ''), '18446744073709551615')::xid8
		and l.seq > $3::int8 and l.seq <= $7::int8 and l.seq <= ($4::text::int8[])[l.partition + 1]
		and pg_visible_in_snapshot(l.xid, $2::text::pg_snapshot)
) as l`

// findMoreLate finds the partitions that have late rows after the first page of a bulk, so that the others need not wait until the
// bulk is delivered. It need not see what the fetch saw: rows visible in upTo stay visible.
func (f *fetch) findMoreLate(ctx context.Context) error {
	for _, g := range f.groups {
		if g.seen < f.limit || g.cursor.upTo != "" || g.size == 1 {
			continue
		}
		results, err := implicit(ctx, f.store.pool, planSQL, func(b *pgx.Batch) {
			b.Queue(f.store.names.expand(moreLateSQL), g.cursor.snapshot, f.snapshot, g.end, arrayOf(g.positions),
				arrayOf(g.listed), g.ceiling, g.last)
		})
		if err != nil {
			return fmt.Errorf("read after a page of late messages: %w", err)
		}
		g.further, err = readHolding(results)
		if closeErr := results.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return fmt.Errorf("read after a page of late messages: %w", err)
		}
	}
	return nil
}
