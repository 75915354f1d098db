package schedule

import "github.com/postrider/postrider/store"

// tracker follows the messages of one partition that were read from the log, in the order in which they were read, and says how
// far the cursor may move: to the end of the done prefix. A message is done when its outcome is known and, if it is not delivered,
// is part of the next settlement.
//
// Late messages of a batch precede its fresh ones, so a prefix that reaches a fresh message includes all the late ones, as
// Batch requires.
type tracker struct {
	entries    []entry // a queue: the live part is entries[head:]
	head       int
	base       uint64       // ticket of entries[0]
	cursor     store.Cursor // the end of the done prefix, as far as the cursor can be there
	passed     uint64       // the ticket after the cursor
	parkedUpTo uint64       // the ticket after the last message that was parked
	// delivered counts deliveries that the cursor has passed and that no settlement has counted; ahead counts those in the
	// done prefix that the cursor has not passed yet.
	delivered, ahead int64
}

type entry struct {
	// sequence is the position of the cursor once everything up to here is done, if it can be here.
	sequence int64
	batch    *store.Cursor // the Next of its batch
	done     bool
	counts   bool // it was delivered, and counts as delivered once the cursor has passed it
	late     bool
	canStop  bool // the cursor can be after it: it is fresh, or the last of the late ones
	last     bool // of its batch
}

// cursor returns the cursor after an entry, if it can be there.
func (e *entry) cursor() (c store.Cursor, canStop bool) {
	if e.last {
		return *e.batch, true
	}
	return store.Cursor{Position: e.sequence, Snapshot: e.batch.Snapshot}, e.canStop
}

// add appends the messages of a batch that was read after a position, and returns the ticket of the first; the others follow
// by one. A batch without messages moves the cursor as soon as everything before it is done.
func (t *tracker) add(b *store.Batch, after int64) uint64 {
	if t.head > 0 && t.head*2 >= len(t.entries) {
		n := copy(t.entries, t.entries[t.head:])
		clear(t.entries[n:])
		t.entries, t.base, t.head = t.entries[:n], t.base+uint64(t.head), 0
	}
	first := t.base + uint64(len(t.entries))
	next := b.Next
	for i := range b.Entries {
		e := entry{
			sequence: b.Entries[i].Message.Sequence, batch: &next, late: i < b.Late, canStop: i >= b.Late-1, last: i == len(b.Entries)-1,
		}
		if e.late {
			e.sequence = after
		}
		t.entries = append(t.entries, e)
	}
	if len(b.Entries) == 0 {
		t.entries = append(t.entries, entry{batch: &next, late: true, last: true, done: true})
	}
	return first
}

// finish marks a message as done.
func (t *tracker) finish(ticket uint64) { t.entries[ticket-t.base].done = true }

// deliver marks a message as done by its delivery, possibly after it was parked. It counts when the cursor passes it: what
// the cursor has not passed is redelivered after a crash.
func (t *tracker) deliver(ticket uint64) {
	switch {
	case ticket < t.passed:
		t.delivered++
	case ticket < t.begin():
		t.ahead++
	default:
		t.entries[ticket-t.base].done, t.entries[ticket-t.base].counts = true, true
	}
}

// takeDelivered returns how many deliveries must be counted now.
func (t *tracker) takeDelivered() int64 {
	n := t.delivered
	t.delivered = 0
	return n
}

// park marks a message as done by being parked.
func (t *tracker) park(ticket uint64) {
	t.finish(ticket)
	t.parkedUpTo = max(t.parkedUpTo, ticket+1)
}

// advance moves the cursor over the done prefix and reports whether it moved.
func (t *tracker) advance() bool {
	moved := false
	for t.head < len(t.entries) && t.entries[t.head].done {
		e := &t.entries[t.head]
		if e.counts {
			t.ahead++
		}
		if c, canStop := e.cursor(); canStop {
			t.cursor, t.passed, moved = c, t.base+uint64(t.head)+1, true
			t.delivered, t.ahead = t.delivered+t.ahead, 0
		}
		e.batch = nil
		t.head++
	}
	return moved
}

// ifDoneUpTo returns the tracker as it would be if everything before a ticket were done, as far as a settlement needs it: it
// shares the entries.
func (t *tracker) ifDoneUpTo(upTo uint64) tracker {
	out := *t
	for i := t.head; i < len(t.entries) && (t.base+uint64(i) < upTo || t.entries[i].done); i++ {
		if c, canStop := t.entries[i].cursor(); canStop {
			out.cursor, out.passed = c, t.base+uint64(i)+1
		}
		out.head++
	}
	return out
}

// lateUntil returns the ticket after the group of late messages that a message belongs to; of a fresh message, its own
// ticket.
func (t *tracker) lateUntil(ticket uint64) uint64 {
	i := int(ticket - t.base)
	for i < len(t.entries) && t.entries[i].late {
		i++
		if t.entries[i-1].canStop || t.entries[i-1].last {
			break
		}
	}
	return t.base + uint64(i)
}

// withLateGroups returns the ticket up to which everything must be done for the cursor to pass both the messages before the
// given ticket and the done prefix: the end of their groups of late messages.
func (t *tracker) withLateGroups(ticket uint64) uint64 {
	if t.passed < t.begin() { // the cursor is before the end of a group
		ticket = max(ticket, t.lateUntil(t.begin()))
	}
	if ticket > t.begin() {
		ticket = max(ticket, t.lateUntil(ticket-1))
	}
	return ticket
}

// passedParked reports whether the cursor has passed everything that was parked.
func (t *tracker) passedParked() bool { return t.passed >= t.parkedUpTo }

// open is the number of messages that are not done, or come after one that is not.
func (t *tracker) open() int { return len(t.entries) - t.head }

// begin is the ticket of the first message that is not done, end the one after the last that was read.
func (t *tracker) begin() uint64 { return t.base + uint64(t.head) }
func (t *tracker) end() uint64   { return t.base + uint64(len(t.entries)) }
