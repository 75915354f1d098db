package schedule

import (
	"maps"
	"slices"
)

// checkState checks what holds in every state.
func (w *world) checkState() {
	w.checkCounts()
	w.checkQueues()
	w.checkParked()
	w.checkSettling()
}

func (w *world) checkCounts() {
	s, p := w.s, w.p
	if s.unsettled != p.unsent+p.inFlight || p.outcomes-p.outcomesRecorded != uint64(p.unsent+p.inFlight) {
		w.failf("%d unsettled of %d and %d", s.unsettled, p.unsent, p.inFlight)
	}
	if s.heldKeys != len(p.held) {
		w.failf("%d held keys, counted %d", len(p.held), s.heldKeys)
	}
	items := len(p.withdrawn)
	for _, batch := range w.calls {
		items += len(batch)
	}
	for q := range p.allQueues {
		items += q.waiting
	}
	for _, u := range s.units() {
		if u.item != nil {
			items++
		}
	}
	for _, a := range s.awaiting {
		if a.item != nil {
			items++
		}
	}
	if items != s.InMemory() {
		w.failf("%d messages in memory, counted %d", items, s.InMemory())
	}
}

func (w *world) checkQueues() {
	ready, awaiting := make(map[*queue[int64]]int), make(map[*queue[int64]]int)
	for _, u := range w.s.units() {
		ready[u.queue]++
	}
	for _, a := range w.s.awaiting {
		awaiting[a.queue]++
	}
	for q := range w.p.allQueues {
		is, blocked := ready[q], w.p.tx.is(q) && w.p.tx.blocked
		stopped := q.deaths > 0 || w.p.leaving
		switch {
		case q.running != (q.out > 0 || awaiting[q] > 0 || blocked), is > 1, is > 0 && (q.running || stopped || q.head == nil):
			w.failf("queue %q is ready %d times, running %v with %d out, awaiting %d, blocked %v", q.key, is, q.running, q.out, awaiting[q], blocked)
		case q.head != nil && is == 0 && !q.running && !stopped:
			w.failf("queue %q waits for nothing", q.key)
		}
	}
}

func (w *world) checkParked() {
	for seq, ticket := range w.p.parkedAhead {
		if ticket < w.p.cursorTicket {
			w.failf("parked message %d waits for the cursor, which has passed it", seq)
		}
	}
	for key, h := range w.p.held {
		if h.blocks < 0 || h.unrecorded < 0 {
			w.failf("key %q: %+v", key, *h)
		}
	}
}

func (w *world) checkSettling() {
	if out := w.p.tx != nil && w.p.tx.out > 0; w.p.settling != (w.sent != nil || out) || out && w.sent != nil {
		w.failf("settling %v, sent %v, in a transaction %v", w.p.settling, w.sent != nil, out)
	}
}

// checkDatabase checks that nothing is lost if the process ends now.
func (w *world) checkDatabase() {
	for i, key := range w.keys {
		seq := int64(i + 1)
		_, parked := w.db.parked[seq]
		_, dead := w.db.dead[seq]
		switch covered := w.covers(w.db.cursor, seq); {
		case covered && !parked && !dead && w.delivered[seq] == 0:
			w.failf("the cursor has passed message %d, which is not finished", seq)
		case parked && dead:
			w.failf("message %d is parked and dead", seq)
		}
		if _, held := w.db.held[key]; parked && w.db.parked[seq].waits && !held {
			w.failf("message %d waits in key %q, which is not held", seq, key)
		}
	}
}

// settleDown lets everything succeed until nothing is left to do, and checks the end.
func (w *world) settleDown() {
	w.stage = len(w.visible) - 1
	for range 200 {
		busy := false
		for len(w.calls) > 0 {
			w.endCall(0)
			busy = true
		}
		if w.p.Leaving() {
			if w.p.Left() {
				w.lose()
			}
			busy = true
		}
		if w.sent != nil {
			if !w.applied {
				w.apply()
			}
			w.answer()
			busy = true
		}
		if !w.p.Leaving() {
			busy = w.fetch() || busy
			busy = w.due() || busy
			for _, key := range slices.Sorted(maps.Keys(w.db.held)) {
				if w.db.held[key].undecided || w.p.decides(key) {
					w.decide(key)
					busy = true
				}
			}
			busy = w.take(2) || busy
		}
		busy = w.settle() || busy
		if !busy {
			w.checkEnd()
			return
		}
		if w.err != nil {
			return
		}
	}
	w.failf("the work does not end: %+v", w.s.Counts())
}

// endCall ends a call with success.
func (w *world) endCall(n int) {
	batch := w.calls[n]
	if w.cfg.Transactions {
		w.commit(n, len(batch), committed)
		return
	}
	w.complete(n, make([]Kind, len(batch)))
}

// checkEnd checks a world in which nothing is left to do.
func (w *world) checkEnd() {
	delivered := int64(0)
	for seq := int64(1); seq <= int64(len(w.keys)); seq++ {
		if !w.final[seq] {
			w.failf("message %d is neither delivered nor dead", seq)
		}
		if _, dead := w.db.dead[seq]; !dead {
			delivered++
		}
		if !w.covers(w.db.cursor, seq) {
			w.failf("the cursor has not passed message %d", seq)
		}
		if w.lost == 0 && w.delivered[seq] > 1 {
			w.failf("message %d was delivered %d times", seq, w.delivered[seq])
		}
	}
	if len(w.db.parked) > 0 || len(w.db.held) > 0 {
		w.failf("parked %v and held %v for ever", w.db.parked, w.db.held)
	}
	if w.db.delivered != delivered {
		w.failf("%d deliveries are counted, want %d", w.db.delivered, delivered)
	}
	c := w.s.Counts()
	if c != (Counts{}) || len(w.p.parkedAhead)+len(w.p.early)+len(w.p.withdrawn)+len(w.s.outlived.(ownCalls))+len(w.s.awaiting) > 0 {
		w.failf("left in memory: %+v", c)
	}
}
