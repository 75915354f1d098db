package memory

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// row is one message in the log. Only its partition and removed ever change, and what an erasure empties.
type row struct {
	seq         int64
	xid         uint64
	partition   int
	size        int
	msg         *postrider.Message
	availableAt time.Time // zero: at once
	undecodable error
	removed     bool // rolled back or past retention
}

// partitionLog is the log of one partition: its rows, including those of running transactions, by sequence and by transaction.
type partitionLog struct {
	rows  []*row
	byXID map[uint64][]*row // each sorted by sequence
}

func newLog(partitions int) (log []*partitionLog) {
	for range partitions {
		log = append(log, &partitionLog{byXID: make(map[uint64][]*row)})
	}
	return log
}

func (p *partitionLog) add(r *row) {
	p.rows = append(p.rows, r)
	p.byXID[r.xid] = append(p.byXID[r.xid], r)
}

// from returns the rows after a sequence.
func from(rows []*row, seq int64) []*row {
	i, _ := slices.BinarySearchFunc(rows, seq+1, func(r *row, s int64) int { return cmp.Compare(r.seq, s) })
	return rows[i:]
}

// find returns the row of a sequence, nil if there is none.
func (p *partitionLog) find(seq int64) *row {
	if rest := from(p.rows, seq-1); len(rest) > 0 && rest[0].seq == seq {
		return rest[0]
	}
	return nil
}

// late returns, by sequence, at most limit of the rows up to the cursor's position that are visible in upTo but not delivered.
func (p *partitionLog) late(c cursor, upTo snapshot, limit int) []*row {
	var out []*row
	add := func(xid uint64) {
		if !upTo.sees(xid) {
			return
		}
		// No single transaction can contribute more than the limit.
		for i, r := range from(p.byXID[xid], c.page) {
			if i == limit || r.seq > c.position {
				break
			}
			out = append(out, r)
		}
	}
	if c.position == 0 {
		return nil
	}
	for _, xid := range c.seen.xip {
		add(xid)
	}
	// Here no transaction that began later has a sequence this low. In a database it can, since sequence and transaction ID are
	// not assigned in one step.
	for xid := c.seen.xmax; xid < upTo.xmax; xid++ {
		add(xid)
	}
	slices.SortFunc(out, func(a, b *row) int { return cmp.Compare(a.seq, b.seq) })
	return out[:min(limit, len(out))]
}

// fresh yields, by sequence, the rows after a position that are visible in s.
func (p *partitionLog) fresh(position int64, s snapshot) iter.Seq[*row] {
	return func(yield func(*row) bool) {
		for _, r := range from(p.rows, position) {
			if s.sees(r.xid) && !yield(r) {
				return
			}
		}
	}
}

// remove removes rows, of any partitions, from the log.
func (db *database) remove(rows []*row) {
	type part struct {
		partition int
		xid       uint64
	}
	first := make(map[int]int64) // by partition, the lowest sequence to remove
	parts := make(map[part]bool)
	for _, r := range rows {
		r.removed = true
		db.bytes -= int64(r.size)
		parts[part{r.partition, r.xid}] = true
		if seq, ok := first[r.partition]; !ok || r.seq < seq {
			first[r.partition] = r.seq
		}
	}
	removed := func(r *row) bool { return r.removed }
	for partition, seq := range first {
		p := db.log[partition]
		tail := from(p.rows, seq-1)
		kept := slices.DeleteFunc(tail, removed)
		p.rows = p.rows[:len(p.rows)-len(tail)+len(kept)]
	}
	for k := range parts {
		byXID := db.log[k.partition].byXID
		if byXID[k.xid] = slices.DeleteFunc(byXID[k.xid], removed); len(byXID[k.xid]) == 0 {
			delete(byXID, k.xid)
		}
	}
}

// Fetch implements store.Log. It reads partitions in the order of the request until it reaches MaxBytes.
func (s *Store) Fetch(ctx context.Context, name string, req store.FetchRequest) ([]store.Batch, error) {
	return do(ctx, s, "Fetch", func(db *database) ([]store.Batch, error) {
		at, present := now(), db.snapshot()
		room := stored.Budget{Left: req.MaxBytes}
		var out []store.Batch
		for _, fp := range req.Partitions {
			if fp.Partition < 0 || fp.Partition >= len(db.log) {
				return nil, fmt.Errorf("fetch: there is no partition %d", fp.Partition)
			}
			c, err := parseCursor(fp.After)
			if err != nil {
				return nil, fmt.Errorf("fetch partition %d: %w", fp.Partition, err)
			}
			if name != "" && (db.lease(name, fp.LeaseRef) == nil || c.seen.xmax > present.xmax) {
				out = append(out, store.Batch{Partition: fp.Partition, Lost: true})
				continue
			}
			b := db.log[fp.Partition].read(c, present, req.Limit, &room, at)
			b.Partition = fp.Partition
			if len(b.Entries) > 0 || b.More || !c.seen.equal(present) {
				out = append(out, b)
			}
		}
		return out, nil
	})
}

// read reads one partition for a fetch.
func (p *partitionLog) read(c cursor, present snapshot, limit int, room *stored.Budget, at time.Time) store.Batch {
	var b store.Batch
	upTo := present
	if c.paging {
		upTo = c.upTo
	}
	late := p.late(c, upTo, limit+1)
	for i, r := range late {
		if i == limit || !room.Take(r.size) {
			// The page ends inside the late rows: the next page continues after the last row of this one, under the same
			// snapshot.
			if i > 0 {
				c.paging, c.upTo, c.page = true, upTo, late[i-1].seq
			}
			b.Late, b.Next, b.More = i, c.encode(), true
			return b
		}
		b.Entries = append(b.Entries, r.record(at))
	}
	b.Late = len(late)
	if c.paging {
		b.Next, b.More = cursor{position: c.position, seen: upTo}.encode(), true
		return b
	}
	next := cursor{position: c.position, seen: present}
	for r := range p.fresh(c.position, present) {
		if len(b.Entries) == limit || !room.Take(r.size) {
			b.More = true
			break
		}
		b.Entries = append(b.Entries, r.record(at))
		next.position = r.seq
	}
	b.Next = next.encode()
	return b
}

func (r *row) record(at time.Time) store.Entry {
	rec := store.Entry{Message: clone(r.msg), Err: r.undecodable}
	if !r.availableAt.IsZero() {
		rec.Delay = r.availableAt.Sub(at)
	}
	return rec
}
