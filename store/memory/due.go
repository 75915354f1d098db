package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// dueRow is a row that is due at a time: a parkedRow or a heldRow.
type dueRow interface {
	// due returns when it is due, and what decides between rows that are due at the same time.
	due() (at time.Time, seq int64, key string)
}

func (r *parkedRow) due() (time.Time, int64, string) { return r.dueAt, r.msg.Sequence, "" }

func (h *heldRow) due() (time.Time, int64, string) { return h.next, h.seq, h.key }

func compareDue(a, b dueRow) int {
	at, seq, key := a.due()
	otherAt, otherSeq, otherKey := b.due()
	return cmp.Or(at.Compare(otherAt), cmp.Compare(seq, otherSeq), cmp.Compare(key, otherKey))
}

// dueRows are rows in the order in which they are due. In a slice, a row that is added or removed moves those after it, which takes
// microseconds even with 100,000 rows (BenchmarkDue), and a copy for CrashLosing is simple.
type dueRows []dueRow

func (d *dueRows) add(r dueRow) {
	i, _ := slices.BinarySearchFunc(*d, r, compareDue)
	*d = slices.Insert(*d, i, r)
}

func (d *dueRows) remove(r dueRow) {
	i, _ := slices.BinarySearchFunc(*d, r, compareDue)
	if i > 0 {
		*d = slices.Delete(*d, i, i+1)
		return
	}
	(*d)[0] = nil // the common case, without moving the others
	*d = (*d)[1:]
}

// dueWork is a row that is due, and its partition.
type dueWork struct {
	partition int
	row       dueRow
}

// Due implements store.Log.
func (s *Store) Due(ctx context.Context, name string, req store.DueRequest) (store.DueResult, error) {
	return do(ctx, s, "Due", func(db *database) (store.DueResult, error) {
		at, r := now(), db.relay(name)
		var out store.DueResult
		held := make([]int, 0, len(req.Leases))
		for _, l := range req.Leases {
			if db.lease(name, l) == nil {
				out.Lost = append(out.Lost, l.Partition)
			} else {
				held = append(held, l.Partition)
			}
		}
		out.From = r.dueFrom(held, req.From, at)
		work, next := r.due(held, req, at)
		out.Next, out.Decisions = next, db.openDecisions(name, held)
		room := stored.Budget{Left: req.MaxBytes}
		for i, w := range work {
			run, ok := r.parked[w.partition].run(w, req.RunLength, &room, at)
			if i == req.Runs || !ok {
				out.More, out.Next = true, 0
				break
			}
			out.Runs = append(out.Runs, run)
		}
		return out, nil
	})
}

// due returns the work that is due, oldest first, and how long until the next is due, -1 if there is none. Of each partition, it returns
// no more work than shows that there is more than asked for.
func (r *relayState) due(partitions []int, req store.DueRequest, at time.Time) (work []dueWork, next time.Duration) {
	next = -1
	busyKeys, busySequences := setOf(req.BusyKeys), setOf(req.BusySequences)
	for _, partition := range partitions {
		due := 0
		for _, row := range r.parked[partition].due {
			when, seq, key := row.due()
			if when.Before(req.From) { // those of other stores are gone, and this one shows what a relay makes of it
				continue
			}
			if busyKeys[key] || key == "" && busySequences[seq] {
				continue
			}
			if wait := when.Sub(at); wait > 0 {
				if next < 0 || wait < next {
					next = wait
				}
				break
			}
			work = append(work, dueWork{partition, row})
			if due++; due > req.Runs {
				break
			}
		}
	}
	slices.SortFunc(work, func(a, b dueWork) int { return compareDue(a.row, b.row) })
	return work, next
}

// dueFrom returns the From of a result.
func (r *relayState) dueFrom(partitions []int, from, at time.Time) time.Time {
	first := at.Add(-store.DueLag)
	for _, partition := range partitions {
		for _, row := range r.parked[partition].due {
			when, _, _ := row.due()
			if when.Before(from) {
				continue
			}
			if when.Before(first) {
				first = when
			}
			break
		}
	}
	return first
}

func setOf[T comparable](list []T) map[T]bool {
	set := make(map[T]bool, len(list))
	for _, v := range list {
		set[v] = true
	}
	return set
}

// run returns the records of a piece of work, and false if not even the first of them fits.
func (p *parkedSet) run(w dueWork, length int, room *stored.Budget, at time.Time) (store.ParkedRun, bool) {
	run := store.ParkedRun{Partition: w.partition}
	var rows []*parkedRow
	switch row := w.row.(type) {
	case *heldRow:
		run.Key = row.key
		rows = p.waiting[run.Key]
	case *parkedRow:
		rows = []*parkedRow{row}
	}
	for i, row := range rows {
		if i == length || !room.Take(row.size) {
			break
		}
		run.Entries = append(run.Entries, row.record(at))
	}
	return run, len(rows) == 0 || len(run.Entries) > 0
}

func (r *parkedRow) record(at time.Time) store.Entry {
	since := r.parkedAt
	if r.msg.DeliverAt.After(since) {
		since = r.msg.DeliverAt
	}
	rec := store.Entry{
		Message: clone(r.msg), Err: r.undecodable, Attempts: r.attempts, Redrives: r.redrives, Reason: r.reason,
		ParkedFor: max(0, at.Sub(since)),
	}
	if !r.dueAt.IsZero() {
		rec.Delay = r.dueAt.Sub(at)
	}
	return rec
}
