package schedule

import (
	"maps"
	"slices"
)

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
	if c != (Counts{}) || len(w.p.parked)+len(w.p.early)+len(w.p.withdrawn)+len(w.s.outlived.(ownCalls))+len(w.s.awaiting) > 0 {
		w.failf("left in memory: %+v", c)
	}
}
