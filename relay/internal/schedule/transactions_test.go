package schedule

import (
	"errors"
	"slices"
)

// commitResult is how a commit ends.
type commitResult int

const (
	committed commitResult = iota
	uncertainApplied
	uncertainNot
)

// takeBatch ends a call.
func (w *world) takeBatch(n int) []*Item[int64] {
	batch := w.calls[n]
	w.calls = slices.Delete(w.calls, n, n+1)
	return batch
}

// doTx makes an action of a transaction happen.
func (w *world) doTx(kind actionKind, n, arg int) {
	switch kind {
	case commit:
		w.commit(n, arg, committed)
	case commitTold:
		w.commit(n, len(w.calls[n]), uncertainApplied)
	case commitLost:
		w.commit(n, len(w.calls[n]), uncertainNot)
	case commitRefused:
		w.discard(w.calls[n])
		w.commit(n, arg, committed)
	case undoPostponed:
		w.undone(n, arg, Postponed)
	case undoDead:
		w.undone(n, arg, Dead)
	case undoIsolate:
		batch := w.takeBatch(n)
		w.s.Isolate(batch, arg, len(batch)-arg)
	case cutOff:
		w.s.Undone(w.takeBatch(n), 0, nil)
	}
}

// discard lets an operator discard the first parked message of a transaction while it is under way.
func (w *world) discard(batch []*Item[int64]) {
	seq := batch[slices.IndexFunc(batch, func(it *Item[int64]) bool { return it.parked })].Sequence
	delete(w.db.parked, seq)
	w.db.dead[seq], w.discarded[seq] = false, true
	w.finish(seq, Dead)
	w.before = nil // a decision is durable
}

// undone ends a transaction because a message failed.
func (w *world) undone(n, at int, kind Kind) {
	batch := w.takeBatch(n)
	seq := batch[at].Sequence
	w.s.Undone(batch, at, func() Outcome {
		w.finish(seq, kind)
		return Outcome{Kind: kind, Failed: true, Reason: "retry"}
	})
}

// commit commits the first done messages of a transaction, or more of them that belong together.
func (w *world) commit(n, done int, how commitResult) {
	batch := w.takeBatch(n)
	done = max(done, Late(batch))
	out := w.s.Commit(batch[:done])
	if out == nil {
		w.s.Undone(batch, 0, nil)
		return
	}
	for _, seq := range out.Removed {
		if _, parked := w.db.parked[seq]; !parked {
			w.s.NotParked(batch, out)
			return
		}
	}
	var released []string
	if how != uncertainNot {
		if out.Number > 0 && out.Number != w.db.number+1 {
			w.failf("settlement %d follows %d", out.Number, w.db.number)
		}
		handled := slices.DeleteFunc(slices.Clone(batch[:done]), func(it *Item[int64]) bool { return it.NotDue })
		for _, it := range handled {
			w.finish(it.Sequence, Delivered)
			if w.delivered[it.Sequence] > 1 {
				w.failf("the side effect of message %d happens twice", it.Sequence)
			}
		}
		released = w.db.apply(&out.Settlement)
		for _, it := range handled {
			for earlier := int64(1); earlier < it.Sequence; earlier++ {
				if it.Key != "" && w.keys[earlier-1] == it.Key && !w.recorded(earlier) && slices.Contains(w.commits[:w.visible[w.stage]], earlier) {
					w.failf("message %d is committed before message %d of its key", it.Sequence, earlier)
				}
			}
		}
		w.before = nil // a commit is durable
		w.checkDatabase()
	}
	switch err := errors.New("no answer"); {
	case how == committed:
		w.s.Committed(batch, done, out, released, w.now)
	case w.s.Uncertain(batch[:done], err):
		w.lost++
		w.lose()
		w.s.Undone(batch, 0, nil)
	default:
		w.s.Undone(batch, 0, func() Outcome { return Outcome{Kind: Postponed, Failed: true, Reason: "retry"} })
	}
}
