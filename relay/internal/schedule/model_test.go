package schedule

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// scenario is a small case to explore.
type scenario struct {
	cfg Config
	// keys are those of the messages 1, 2 and so on; commits is the order in which they are committed, and batches how many of
	// them are visible to the first fetch, to those after one more commit, and so on.
	keys    []string
	commits []int64
	visible []int
	delayed map[int64]bool
	// calls is the maximum number of calls at a time, room that of messages in one call. The others say how often something
	// may happen on each path.
	calls, room                                            int
	failures, unattempted, losses, slow, decisions, leaves int
	continuations                                          int
	large                                                  bool
}

// world is a process that works on a partition with a schedule, and the database.
type world struct {
	*scenario
	now      time.Time
	db       *database
	before   *database // the database before the last settlement, which a crash may lose
	s        *Schedule[int64]
	p        *Partition[int64]
	fetched  store.Cursor
	calls    [][]*Item[int64]
	sent     *Settlement // in progress
	applied  bool        // it was applied, and the answer is missing
	released []string
	stage    int // index in visible
	lost     int // leases lost so far
	used     [7]int
	// final are messages that were delivered or dead-lettered; delivered counts by message.
	final     map[int64]bool
	delivered map[int64]int
	// discarded by an operator while they were in a transaction, which is refused.
	discarded map[int64]bool
	err       error
}

// The indexes of world.used.
const (
	failures = iota
	unattempted
	losses
	slow
	decisions
	leaves
	continuations
)

func (w *world) limits() [7]int {
	return [...]int{w.failures, w.unattempted, w.losses, w.slow, w.decisions, w.leaves, w.continuations}
}

func newWorld(sc *scenario) *world {
	w := &world{
		scenario: sc, now: time.Unix(0, 0), s: New[int64](sc.cfg),
		db:    &database{parked: make(map[int64]row), dead: make(map[int64]bool), held: make(map[string]heldRow)},
		final: make(map[int64]bool), delivered: make(map[int64]int), discarded: make(map[int64]bool),
	}
	w.lease()
	return w
}

func (w *world) failf(format string, args ...any) {
	w.err = errors.Join(w.err, fmt.Errorf(format, args...))
}

// covers reports whether a cursor has passed a message: its snapshot is the number of commits that were visible.
func (w *world) covers(c store.Cursor, seq int64) bool {
	n, _ := strconv.Atoi(c.Snapshot)
	return seq <= c.Position && slices.Contains(w.commits[:n], seq)
}

func (w *world) lease() {
	l := &store.Lease{Cursor: w.db.cursor, Settled: w.db.number}
	l.Parked.Keys = slices.Sorted(maps.Keys(w.db.held))
	if l.Parked.More = len(l.Parked.Keys) > w.cfg.MaxHeld; l.Parked.More { // as relay.acquireRequest asks for
		l.Parked.Keys = l.Parked.Keys[:w.cfg.MaxHeld]
	}
	for seq := int64(1); seq <= int64(len(w.keys)); seq++ {
		_, parked := w.db.parked[seq]
		if _, dead := w.db.dead[seq]; (parked || dead) && !w.covers(w.db.cursor, seq) {
			l.Parked.Sequences = append(l.Parked.Sequences, seq)
		}
	}
	w.p = w.s.Hold(l)
	w.p.Until = w.now.Add(time.Hour)
	w.fetched = w.db.cursor
}

func (w *world) lose() {
	w.p.Lose()
	w.sent, w.applied, w.released = nil, false, nil
	w.lease()
}

// fetch reads all that is visible. It reports whether it changed anything.
func (w *world) fetch() bool {
	visible := w.commits[:w.visible[w.stage]]
	var late, fresh []int64
	for _, seq := range visible {
		switch {
		case w.covers(w.fetched, seq):
		case seq <= w.fetched.Position:
			late = append(late, seq)
		default:
			fresh = append(fresh, seq)
		}
	}
	slices.Sort(late)
	slices.Sort(fresh)
	all := append(late, fresh...)
	next := store.Cursor{Position: max(w.fetched.Position, slices.Max(append(all, 0))), Snapshot: strconv.Itoa(len(visible))}
	if len(all) == 0 && next == w.fetched {
		w.p.ReadToEnd()
		return false
	}
	b := &store.Batch{Late: len(late), Next: next}
	for _, seq := range all {
		b.Entries = append(b.Entries, store.Entry{Message: &postrider.Message{Sequence: seq}})
	}
	ticket := w.p.Announce(b, w.fetched.Position)
	v := w.s.BeginLookup()
	defer w.s.EndLookup(v)
	w.lookUp(v)
	for i, seq := range all {
		it := w.item(seq)
		if w.delayed[seq] {
			it.Delay = time.Nanosecond // of a time that stands still
		}
		w.p.Admit(it, ticket+uint64(i), v, w.now)
	}
	w.fetched = next
	w.p.ReadToEnd()
	return true
}

func (w *world) item(seq int64) *Item[int64] {
	return &Item[int64]{Message: seq, Key: w.keys[seq-1], Sequence: seq, Size: 1}
}

func (w *world) lookUp(v *HeldLookup) {
	for _, key := range slices.Sorted(maps.Keys(w.db.held)) {
		if w.p.MayHold(key) {
			v.Found([]string{key})
		}
	}
}

// due reads the parked messages that are due. It reports whether there were any.
func (w *world) due() bool {
	keys, sequences := w.p.Busy(nil, nil)
	v := w.s.BeginLookup()
	defer w.s.EndLookup(v)
	w.lookUp(v)
	found := false
	for _, key := range slices.Sorted(maps.Keys(w.db.held)) {
		if w.db.held[key].undecided || slices.Contains(keys, key) {
			continue
		}
		run := w.db.run(key)
		items := make([]Item[int64], len(run))
		for i, seq := range run {
			items[i] = *w.item(seq)
		}
		w.p.AdmitRun(key, items, w.now)
		found = true
	}
	for _, seq := range slices.Sorted(maps.Keys(w.db.parked)) {
		if !w.db.parked[seq].waits && !slices.Contains(sequences, seq) {
			w.p.AdmitDue(w.item(seq), v, w.now)
			found = true
		}
	}
	return found
}

// take takes messages for a call, and checks that they may be called.
func (w *world) take(room int) bool {
	batch, ended := w.s.Take(nil, room, w.now)
	if ended != nil {
		w.failf("a partition whose lease holds is said to have ended")
	}
	for i, it := range batch {
		if !it.NotDue {
			w.mayCall(it.Sequence, batch[:i])
		}
	}
	if len(batch) > 0 {
		w.calls = append(w.calls, batch)
	}
	return len(batch) > 0
}

// mayCall checks a message that is called after others in the same call.
func (w *world) mayCall(seq int64, before []*Item[int64]) {
	key := w.keys[seq-1]
	same := func(it *Item[int64]) bool { return key != "" && it.Key == key && !it.NotDue || it.Sequence == seq }
	for _, batch := range w.calls {
		if slices.ContainsFunc(batch, same) {
			w.failf("message %d is called while another call works on it or its key", seq)
		}
	}
	_, parked := w.db.parked[seq]
	_, dead := w.db.dead[seq]
	switch {
	case w.discarded[seq]: // the commit will be refused
	case w.final[seq] && w.lost == 0, w.cfg.Transactions && w.delivered[seq] > 0:
		w.failf("message %d is called again", seq)
	case dead:
		w.failf("message %d is called although it is a dead letter", seq)
	case !parked && w.covers(w.db.cursor, seq):
		w.failf("message %d is called although its delivery is recorded", seq)
	}
	for earlier := int64(1); earlier < seq && key != ""; earlier++ {
		called := slices.ContainsFunc(before, func(it *Item[int64]) bool { return it.Sequence == earlier })
		// With transactions, a dead letter is recorded together with the messages after it.
		finished := w.recorded(earlier) || w.final[earlier] && w.cfg.Transactions
		if w.keys[earlier-1] == key && !finished && !called && slices.Contains(w.commits[:w.visible[w.stage]], earlier) {
			w.failf("message %d is called before message %d of its key", seq, earlier)
		}
		if w.cfg.HoldOnDead && w.keys[earlier-1] == key && w.db.dead[earlier] && w.db.held[key].undecided {
			w.failf("message %d is called although its key waits for an operator", seq)
		}
	}
}

// recorded reports whether a message was delivered, or is known to the database as a dead letter.
func (w *world) recorded(seq int64) bool {
	_, dead := w.db.dead[seq]
	return dead || w.delivered[seq] > 0
}

// finish records what became of a message: delivered or dead-lettered.
func (w *world) finish(seq int64, kind Kind) {
	switch kind {
	case Delivered:
		w.delivered[seq]++
		w.final[seq] = true
	case Dead:
		w.final[seq] = true
	}
}

// complete ends a call with an outcome for each message.
func (w *world) complete(n int, kinds []Kind) {
	batch := w.calls[n]
	w.calls = slices.Delete(w.calls, n, n+1)
	for _, it := range batch {
		it.Unfinished = false
	}
	current := batch[0].partition == w.p
	if !current { // a publisher delivered what it says, whoever holds the lease
		for i, kind := range kinds {
			if kind == Delivered {
				w.finish(batch[i].Sequence, Delivered)
			}
		}
	}
	w.s.Complete(batch, func(i int, afterDead bool) Outcome {
		kind := kinds[i]
		if afterDead && kind == Postponed {
			kind = Unattempted
		}
		w.finish(batch[i].Sequence, kind)
		return Outcome{Kind: kind, Failed: kind == Postponed || kind == Dead, After: time.Second, Reason: "retry"}
	})
}

// continued ends a call in which some messages of a queue, from an index on, continue. What precedes them in the queue becomes of a kind, those
// after them are not attempted, and all others are delivered.
func (w *world) continued(n, at, together int, before Kind) {
	batch := w.calls[n]
	w.calls = slices.Delete(w.calls, n, n+1)
	kinds := make([]Kind, len(batch))
	for i, it := range batch {
		switch it.Unfinished = i >= at && i < at+together; {
		case it.Unfinished, i > at && SameQueue(batch[at], it):
			continue
		case i < at && SameQueue(batch[at], it):
			kinds[i] = before
		}
		if kinds[i] == Delivered || it.partition == w.p {
			w.finish(it.Sequence, kinds[i])
		}
	}
	w.calls = append(w.calls, w.s.Complete(batch, func(i int, _ bool) Outcome {
		return Outcome{Kind: kinds[i], Failed: kinds[i] == Dead}
	})...)
}

// settle begins a settlement. It reports whether there was something to record.
func (w *world) settle() bool {
	w.sent = w.p.NextSettlement(w.now.Add(time.Hour)) // of which only the snapshot moved, too
	return w.sent != nil
}

// apply lets the database apply the settlement in progress, and checks what it has now.
func (w *world) apply() {
	w.before, w.applied = w.db.clone(), true
	w.released = w.db.apply(&w.sent.Settlement)
	w.checkDatabase()
}

func (w *world) answer() {
	w.p.Confirm(w.sent, w.released, w.now)
	w.sent, w.applied, w.released = nil, false, nil
}

// decide records and applies an operator's decision: the blocking message is skipped. It reports whether it was applied.
func (w *world) decide(key string) bool {
	if !w.p.PrepareDecision(key) {
		return false
	}
	h := w.db.held[key]
	if _, parked := w.db.parked[h.blocking]; parked {
		delete(w.db.parked, h.blocking)
		w.finish(h.blocking, Dead)
		w.db.dead[h.blocking] = false
	}
	if _, dead := w.db.dead[h.blocking]; dead {
		w.db.dead[h.blocking] = false
	}
	w.db.held[key] = heldRow{blocking: h.blocking}
	w.p.Decided(key)
	w.before = nil // a decision is durable
	return true
}
