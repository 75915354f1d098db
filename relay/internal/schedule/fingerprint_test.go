package schedule

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// printer writes the state of a world.
type printer struct {
	strings.Builder
	order map[uint64]int
}

func (b *printer) print(values ...any) { fmt.Fprintln(b, values...) }

// fingerprint identifies the state: two worlds with the same one behave alike.
func (w *world) fingerprint() [16]byte {
	b := &printer{order: w.orders()}
	if w.used[losses] == w.scenario.losses {
		w.before = nil
	}
	for _, d := range []*database{w.db, w.before} {
		if d != nil {
			b.print(d.cursor, d.number, d.delivered, d.parked, d.dead, d.held)
		}
	}
	b.print(w.fetched, w.applied, w.released, w.stage, w.lost > 0, w.used, w.final, w.delivered, w.discarded)
	if w.sent != nil {
		b.print("sent", *w.sent)
	}
	for _, batch := range w.calls {
		b.print("call")
		for _, it := range batch {
			b.item(it)
		}
	}
	b.print("ready")
	for _, u := range w.s.units() {
		b.unit(u)
	}
	for _, a := range w.s.awaiting {
		b.print("awaiting")
		b.unit(a.unit)
	}
	for _, u := range w.s.uncertain {
		b.print("uncertain", u.sequences)
	}
	b.print(w.s.outlived)
	b.partition(w.p)
	sum := sha256.Sum256([]byte(b.String()))
	return [16]byte(sum[:16])
}

func (b *printer) item(it *Item[int64]) {
	if it.partition.gone {
		b.print(it.Sequence, it.work(), it.Unfinished)
		return
	}
	b.print(it.Sequence, it.ticket, it.parked, it.Unfinished, b.order[it.order], it.Delay, it.Refused, it.queue == nil)
	if it.run != nil {
		b.print(*it.run)
	}
}

func (b *printer) unit(u unit[int64]) {
	if u.item != nil {
		b.item(u.item)
	} else {
		b.print(u.queue.key, u.queue.partition.gone)
	}
}

func (b *printer) queue(q *queue[int64]) {
	b.print("queue", q.key, q.running, q.out, q.deaths)
	for it := q.head; it != nil; it = it.next {
		b.item(it)
	}
}

func (b *printer) partition(p *Partition[int64]) {
	for _, key := range slices.Sorted(maps.Keys(p.queues)) {
		b.queue(p.queues[key])
	}
	if tx := p.tx; tx != nil {
		b.queue(&tx.queue)
		b.print(tx.working, tx.blocked, tx.limit, tx.suspects)
		if tx.out > 0 {
			b.print(tx.late)
		}
	}
	for _, it := range p.withdrawn {
		b.print("withdrawn")
		b.item(it)
	}
	for _, key := range slices.Sorted(maps.Keys(p.held)) {
		h := p.held[key]
		b.print("held", key, h.unrecorded, h.blocks, h.releasing, h.deciding, max(h.decideAfter, p.outcomesRecorded)-p.outcomesRecorded, h.decideAfter == 0)
	}
	b.print("partition", p.leaving, p.number, p.unread, p.partial, p.outdated, p.out, p.parkedAhead, p.early, p.cursorTicket, p.deliveredUpTo)
	b.print(p.pending, p.unsent, p.inFlight, p.settling, p.cursorMoved, p.recordedTicket)
	t := &p.tracker
	b.print(t.begin(), t.cursor, t.passed, t.parkedUpTo, t.delivered, t.ahead)
	for i := t.head; i < len(t.entries); i++ {
		e := t.entries[i]
		b.print(e.sequence, *e.batch, e.done, e.counts, e.late, e.canStop, e.last)
	}
}

// orders numbers the items in memory in their order.
func (w *world) orders() map[uint64]int {
	var all []uint64
	note := func(it *Item[int64]) {
		if it != nil {
			all = append(all, it.order)
		}
	}
	for _, batch := range w.calls {
		for _, it := range batch {
			note(it)
		}
	}
	for q := range w.p.allQueues {
		for it := q.head; it != nil; it = it.next {
			note(it)
		}
	}
	for _, u := range w.s.units() {
		note(u.item)
	}
	for _, a := range w.s.awaiting {
		note(a.item)
	}
	for _, it := range w.p.withdrawn {
		note(it)
	}
	slices.Sort(all)
	rank := make(map[uint64]int, len(all))
	for i, o := range slices.Compact(all) {
		rank[o] = i
	}
	return rank
}
