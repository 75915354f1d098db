package memory

import (
	"cmp"
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

// heldRow is a held key. Like a parkedRow, it is replaced rather than changed.
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
	// waiting has the rows that are queued for a key, by sequence; due those with their own due time, and the held keys that are due at
	// a time.
	waiting map[string][]*parkedRow
	due     dueRows
}

func newParkedSet() *parkedSet {
	return &parkedSet{rows: make(map[int64]*parkedRow), held: make(map[string]*heldRow), waiting: make(map[string][]*parkedRow)}
}

func bySequence(r *parkedRow, seq int64) int { return cmp.Compare(r.msg.Sequence, seq) }

// put adds or replaces a row. A row is replaced by a new one rather than changed, since its fields determine where it is indexed.
func (p *parkedSet) put(r *parkedRow) {
	seq := r.msg.Sequence
	p.take(seq)
	p.rows[seq] = r
	if !r.waits {
		p.due.add(r)
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
		p.due.remove(r)
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

// putHeld adds or replaces a held key.
func (p *parkedSet) putHeld(h *heldRow) {
	p.takeHeld(h.key)
	if p.held[h.key] = h; !h.undecided {
		p.due.add(h)
	}
}

// takeHeld removes a held key.
func (p *parkedSet) takeHeld(key string) {
	if h := p.held[key]; h != nil && !h.undecided {
		p.due.remove(h)
	}
	delete(p.held, key)
}

// resumeKey makes a held key due at once, with its first queued message as the blocking message.
func (p *parkedSet) resumeKey(h *heldRow, at time.Time) { p.putHeld(p.resumed(h, at)) }

// resumed returns a held key as resumeKey makes it.
func (p *parkedSet) resumed(h *heldRow, at time.Time) *heldRow {
	h = p.withHead(h)
	h.undecided, h.next = false, at
	return h
}

// withHead returns a copy of a held key with its first queued message as the blocking message, if there is one.
func (p *parkedSet) withHead(h *heldRow) *heldRow {
	c := *h
	if w := p.waiting[h.key]; len(w) > 0 && w[0].msg.Sequence != h.seq {
		c.seq, c.reason, c.cause, c.attempts = w[0].msg.Sequence, w[0].reason, "", w[0].attempts
	}
	return &c
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
