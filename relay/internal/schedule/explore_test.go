package schedule

import (
	"cmp"
	"slices"
	"testing"
	"time"
)

// action is something that can happen next.
type action struct {
	kind actionKind
	n    int8  // of a call or a key
	arg  int16 // depends on the kind
}

type actionKind int8

const (
	publish actionKind = iota
	fetch
	due
	leave
	handOver
	rejoin
	decide     // about the key of message n
	take       // arg messages, on a turn for fresh messages
	takeParked // on a turn for parked messages
	end        // call n ends with the kinds in arg, two bits for each
	continued  // call n ends, except for some messages: arg has the index of the first, 16 times their number, and whether those before are dead
	commit     // the first arg messages of transaction n
	commitTold // all of them, without an answer: applied, or not
	commitLost
	commitRefused // the first arg messages of transaction n, of which one was parked until an operator discarded it
	undoPostponed // transaction n fails at message arg
	undoIsolate   // transaction n fails at message arg or a later one
	undoDead
	cutOff
	parkSlow
	settle
	apply
	answer
	lose
	crash
)

// cost is what an action uses up.
func (a action) cost() (used [7]int) {
	switch a.kind {
	case leave:
		used[leaves] = 1
	case parkSlow:
		used[slow] = 1
	case lose, crash, commitTold, commitLost:
		used[losses] = 1
	case undoPostponed, undoDead, undoIsolate, commitRefused:
		used[failures] = 1
	case cutOff:
		used[unattempted] = 1
	case continued:
		used[continuations], used[failures] = 1, int(a.arg/256)
	case end:
		for rest := a.arg; rest > 0; rest >>= 2 {
			switch Kind(rest & 3) {
			case Unattempted:
				used[unattempted]++
			case Postponed, Dead:
				used[failures]++
			}
		}
	}
	return used
}

// actions lists everything that can happen next.
func (w *world) actions() (all []action) {
	add := func(kind actionKind, n, arg int) {
		a := action{kind, int8(n), int16(arg)}
		for what, n := range a.cost() {
			if w.used[what]+n > w.limits()[what] {
				return
			}
		}
		all = append(all, a)
	}
	if w.stage+1 < len(w.visible) {
		add(publish, 0, 0)
	}
	switch {
	case !w.p.Leaving():
		add(fetch, 0, 0)
		add(due, 0, 0)
		add(leave, 0, 0)
		for i, key := range w.keys {
			if _, held := w.db.held[key]; held && slices.Index(w.keys, key) == i && (w.p.decides(key) || w.used[decisions] < w.scenario.decisions) {
				add(decide, i, 0)
			}
		}
	case w.p.Left():
		add(handOver, 0, 0)
	case w.p.out > 0:
		add(rejoin, 0, 0)
	}
	for room := 1; room <= w.room && w.s.Ready() > 0 && len(w.calls) < w.scenario.calls; room++ {
		add(take, 0, room)
		if w.s.readyFresh.len() > 0 && w.s.readyParked.len() > 0 {
			add(takeParked, 0, room)
		}
	}
	w.callEnds(add)
	if len(w.calls)+len(w.s.awaiting) > 0 && !w.cfg.Transactions {
		add(parkSlow, 0, 0)
	}
	switch {
	case w.sent == nil:
		add(settle, 0, 0)
	case !w.applied:
		add(apply, 0, 0)
	default:
		add(answer, 0, 0)
	}
	add(lose, 0, 0)
	if w.before != nil {
		add(crash, 0, 0)
	}
	return all
}

// callEnds adds how the calls can end.
func (w *world) callEnds(add func(kind actionKind, n, arg int)) {
	for n, batch := range w.calls {
		if !w.cfg.Transactions {
			for kinds := range 1 << (2 * len(batch)) {
				add(end, n, kinds)
			}
			for i := range batch {
				for j := i; j < len(batch) && !batch[i].Unfinished && (i == j || SameQueue(batch[i], batch[j])); j++ {
					add(continued, n, i+16*(j-i+1))
					if i > 0 && SameQueue(batch[i-1], batch[i]) && !w.cfg.HoldOnDead {
						add(continued, n, i+16*(j-i+1)+256)
					}
				}
			}
			continue
		}
		for i := range batch {
			add(commit, n, i+1)
			if slices.ContainsFunc(batch[:i+1], func(it *Item[int64]) bool { return it.parked }) && batch[0].partition == w.p {
				add(commitRefused, n, i+1)
			}
			add(undoPostponed, n, i)
			if i < len(w.calls[n])-1 {
				add(undoIsolate, n, i)
			}
			add(undoDead, n, i)
		}
		add(cutOff, n, 0)
		add(commitTold, n, 0)
		add(commitLost, n, 0)
	}
}

// do makes an action happen.
func (w *world) do(a action) {
	n, arg := int(a.n), int(a.arg)
	for what, n := range a.cost() {
		w.used[what] += n
	}
	switch a.kind {
	case publish:
		w.stage++
	case fetch:
		w.fetch()
	case due:
		w.due()
	case leave:
		w.p.Leave()
	case handOver:
		w.lose()
	case rejoin:
		w.p.Rejoin()
	case decide:
		if !w.p.decides(w.keys[n]) {
			w.used[decisions]++
		}
		w.decide(w.keys[n])
	case take, takeParked:
		w.s.turn = int(a.kind-take) * 2 // every third turn is for parked messages
		w.take(arg)
	case end:
		kinds := make([]Kind, len(w.calls[n]))
		for i := range kinds {
			kinds[i] = Kind(arg >> (2 * i) & 3)
		}
		w.complete(n, kinds)
	case continued:
		w.continued(n, arg%16, arg/16%16, Kind(arg/256*int(Dead)))
	case parkSlow:
		w.s.ParkSlow(false, false, w.now.Add(time.Hour))
	case settle:
		w.settle()
	case apply:
		w.apply()
	case answer:
		w.answer()
	case crash:
		w.db, w.before = w.before, nil
		w.lost++
		w.lose()
	case lose:
		w.lost++
		w.lose()
	default:
		w.doTx(a.kind, n, arg)
	}
}

// node is a state that was reached: by which action of which other state.
type node struct {
	parent int32
	action action
}

// explore visits every state that a scenario can reach, each once, and checks it. From each, the work must come to its end.
func explore(t *testing.T, sc *scenario) {
	nodes := []node{{parent: -1}}
	seen := map[[16]byte]struct{}{newWorld(sc).fingerprint(): {}}
	path := func(n int32) (steps []action) {
		for ; nodes[n].parent >= 0; n = nodes[n].parent {
			steps = append(steps, nodes[n].action)
		}
		slices.Reverse(steps)
		return steps
	}
	for at := int32(0); int(at) < len(nodes); at++ {
		steps := path(at)
		w := replay(sc, steps)
		for i, a := range w.actions() {
			if i > 0 {
				w = replay(sc, steps)
			}
			w.do(a)
			if w.err == nil {
				state := w.fingerprint()
				if _, known := seen[state]; known {
					continue
				}
				seen[state] = struct{}{}
				w.checkState()
				w.settleDown()
			}
			if w.err != nil {
				t.Fatalf("%v, after %v", w.err, append(steps, a))
			}
			nodes = append(nodes, node{at, a})
		}
	}
	t.Logf("%d states, up to %d steps", len(nodes), len(path(int32(len(nodes)-1))))
}

// replay returns the world after some steps.
func replay(sc *scenario, steps []action) *world {
	w := newWorld(sc)
	for _, a := range steps {
		w.do(a)
	}
	return w
}

// units returns what is ready, oldest first, fresh before parked.
func (s *Schedule[M]) units() (all []unit[M]) {
	for _, q := range []*readyQueue[M]{&s.readyFresh, &s.readyParked} {
		units := slices.Clone(q.units[q.head:])
		for _, r := range q.back {
			units = append(units, r.unit)
		}
		slices.SortFunc(units, func(a, b unit[M]) int { return cmp.Compare(a.front().order, b.front().order) })
		all = append(all, units...)
	}
	return all
}
