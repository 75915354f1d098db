package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	historyKept = 20    // entries in a message's history
	causeKept   = 4_000 // bytes of a cause
)

// parkedRow is the copy of a parked message.
type parkedRow struct {
	msg         *postrider.Message
	undecodable error
	size        int
	key         string // the held key that it is queued for; otherwise the message's own
	waits       bool
	dueAt       time.Time // zero if it waits
	parkedAt    time.Time
	reason      store.ParkReason
	attempts    int
	redrives    int
	history     []postrider.AttemptInfo
}

// heldRow is a held key.
type heldRow struct {
	key       string
	seq       int64 // of the blocking message
	reason    store.ParkReason
	cause     string
	attempts  int
	since     time.Time
	next      time.Time
	undecided bool // it waits for an operator; next has no meaning
}

// parkedSet is what a relay has parked in one partition.
type parkedSet struct {
	rows map[int64]*parkedRow
	held map[string]*heldRow
	// waiting has the rows that are queued for a key, by sequence; timed those with their own due time.
	waiting map[string][]*parkedRow
	timed   map[int64]*parkedRow
}

func newParkedSet() *parkedSet {
	return &parkedSet{
		rows: make(map[int64]*parkedRow), held: make(map[string]*heldRow),
		waiting: make(map[string][]*parkedRow), timed: make(map[int64]*parkedRow),
	}
}

func bySequence(r *parkedRow, seq int64) int { return cmp.Compare(r.msg.Sequence, seq) }

// put adds or replaces a row. A row is replaced by a new one rather than changed, since its fields determine where it is indexed.
func (p *parkedSet) put(r *parkedRow) {
	seq := r.msg.Sequence
	p.take(seq)
	p.rows[seq] = r
	if !r.waits {
		p.timed[seq] = r
		return
	}
	w := p.waiting[r.key]
	i, _ := slices.BinarySearchFunc(w, seq, bySequence)
	p.waiting[r.key] = slices.Insert(w, i, r)
}

// take removes a row and returns it, nil if there is none.
func (p *parkedSet) take(seq int64) *parkedRow {
	r := p.rows[seq]
	if r == nil {
		return nil
	}
	delete(p.rows, seq)
	if !r.waits {
		delete(p.timed, seq)
		return r
	}
	w := p.waiting[r.key]
	switch i, _ := slices.BinarySearchFunc(w, seq, bySequence); {
	case len(w) == 1:
		delete(p.waiting, r.key)
	case i == 0: // the common case, without moving the others
		p.waiting[r.key] = w[1:]
	default:
		p.waiting[r.key] = slices.Delete(w, i, i+1)
	}
	return r
}

// resumeKey makes a held key due at once, with its first queued message as the blocking message.
func (p *parkedSet) resumeKey(h *heldRow, at time.Time) {
	h.undecided, h.next = false, at
	p.findHead(h)
}

// findHead makes the first queued message of a key its blocking message, if there is one.
func (p *parkedSet) findHead(h *heldRow) {
	if w := p.waiting[h.key]; len(w) > 0 && w[0].msg.Sequence != h.seq {
		h.seq, h.reason, h.cause, h.attempts = w[0].msg.Sequence, w[0].reason, "", w[0].attempts
	}
}

// remember appends to a copy of a history and keeps the last entries. It does not add a cause that repeats the last entry without
// an attempt: a message may be postponed often.
func remember(history []postrider.AttemptInfo, attempt int, at time.Time, cause string) []postrider.AttemptInfo {
	if cause == "" {
		return history
	}
	if n := len(history); attempt == 0 && n > 0 && history[n-1].Attempt == 0 && history[n-1].Cause == cut(cause) {
		return history
	}
	history = append(slices.Clone(history), postrider.AttemptInfo{Attempt: attempt, At: at, Cause: cut(cause)})
	return history[max(0, len(history)-historyKept):]
}

// cut shortens a cause to causeKept bytes, without splitting a character.
func cut(cause string) string {
	if len(cause) <= causeKept {
		return cause
	}
	return strings.ToValidUTF8(cause[:causeKept], "")
}

// parkedState returns what a relay has parked or dead-lettered in a partition after a cursor at position.
func (db *database) parkedState(r *relayState, partition int, position int64, maxHeld int) (store.ParkedState, error) {
	out := store.ParkedState{Keys: slices.Sorted(maps.Keys(r.parked[partition].held))}
	stored.CutHeld(&out, maxHeld)
	if r.kind == store.KindConsumer {
		return out, nil
	}
	late, err := db.lateTo(r.cursors[partition], partition)
	if err != nil {
		return store.ParkedState{}, err
	}
	for seq := range r.parked[partition].rows {
		if seq > position || late[seq] {
			out.Sequences = append(out.Sequences, seq)
		}
	}
	for seq, l := range r.latest {
		if (seq > position || late[seq]) && l.Partition == partition {
			out.Sequences = append(out.Sequences, seq)
		}
	}
	slices.Sort(out.Sequences)
	out.Sequences = slices.Compact(out.Sequences)
	return out, nil
}

// lateTo returns the sequences of the rows that a cursor has passed without having seen them.
func (db *database) lateTo(c *cursorState, partition int) (map[int64]bool, error) {
	if c == nil {
		return nil, nil
	}
	at, err := parseCursor(c.cursor)
	if err != nil {
		return nil, fmt.Errorf("load parked: partition %d: %w", partition, err)
	}
	out := make(map[int64]bool)
	for _, r := range db.log[partition].late(at, db.snapshot(), math.MaxInt) {
		out[r.seq] = true
	}
	return out, nil
}

// dueWork is a held key or a parked message that is due at a time.
type dueWork struct {
	partition int
	at        time.Time
	held      *heldRow   // or
	row       *parkedRow // with its own due time
}

func (w dueWork) seq() int64 {
	if w.held != nil {
		return w.held.seq
	}
	return w.row.msg.Sequence
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

// due returns the work that is due, oldest first, and how long until the next is due, -1 if there is none.
func (r *relayState) due(partitions []int, req store.DueRequest, at time.Time) (work []dueWork, next time.Duration) {
	next = -1
	consider := func(w dueWork) {
		if wait := w.at.Sub(at); wait <= 0 {
			work = append(work, w)
		} else if next < 0 || wait < next {
			next = wait
		}
	}
	for _, partition := range partitions {
		p := r.parked[partition]
		for key, h := range p.held {
			if !h.undecided && !slices.Contains(req.BusyKeys, key) {
				consider(dueWork{partition: partition, at: h.next, held: h})
			}
		}
		for seq, row := range p.timed {
			if !slices.Contains(req.BusySequences, seq) {
				consider(dueWork{partition: partition, at: row.dueAt, row: row})
			}
		}
	}
	slices.SortFunc(work, func(a, b dueWork) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.seq(), b.seq())) })
	return work, next
}

// run returns the records of a piece of work, and false if not even the first of them fits.
func (p *parkedSet) run(w dueWork, length int, room *stored.Budget, at time.Time) (store.ParkedRun, bool) {
	run := store.ParkedRun{Partition: w.partition}
	rows := []*parkedRow{w.row}
	if w.held != nil {
		run.Key = w.held.key
		rows = p.waiting[run.Key]
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
