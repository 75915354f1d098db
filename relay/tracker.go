package relay

// tracker follows the messages of one partition that were read from the log and are not settled yet, in the order in
// which they were read, and says how far the cursor may move: to the end of the contiguous settled prefix.
//
// Late records of a batch stand before its fresh ones, so a prefix that reaches a fresh record has all the late ones
// behind it, as Batch demands.
type tracker struct {
	entries []entry // a queue: the live part is entries[head:]
	head    int
	base    uint64 // ticket of entries[0]
	cursor  Cursor // the end of the settled prefix
}

type entry struct {
	sequence int64
	batch    *Cursor // the Next of its batch
	settled  bool
	late     bool
	last     bool // of its batch
}

// add puts the records of a batch behind those that are there and returns the ticket of the first; the others follow by
// one. A batch without records moves the cursor as soon as all before it are settled.
func (t *tracker) add(b *Batch) uint64 {
	if t.head > 0 && t.head*2 >= len(t.entries) {
		n := copy(t.entries, t.entries[t.head:])
		clear(t.entries[n:])
		t.entries, t.base, t.head = t.entries[:n], t.base+uint64(t.head), 0
	}
	first := t.base + uint64(len(t.entries))
	next := b.Next
	for i := range b.Records {
		t.entries = append(t.entries, entry{
			sequence: b.Records[i].Message.Sequence, batch: &next, late: i < b.Late, last: i == len(b.Records)-1,
		})
	}
	if len(b.Records) == 0 {
		t.entries = append(t.entries, entry{batch: &next, late: true, last: true, settled: true})
	}
	return first
}

// settle marks a message as settled.
func (t *tracker) settle(ticket uint64) { t.entries[ticket-t.base].settled = true }

// advance moves the cursor over the settled prefix and reports whether it moved.
func (t *tracker) advance() bool {
	moved := false
	for t.head < len(t.entries) && t.entries[t.head].settled {
		e := &t.entries[t.head]
		switch {
		case e.last:
			t.cursor, moved = *e.batch, true
		case !e.late:
			t.cursor, moved = Cursor{Position: e.sequence, Snapshot: e.batch.Snapshot}, true
		}
		e.batch = nil
		t.head++
	}
	return moved
}

// open is the number of messages that are not settled, or settled behind one that is not.
func (t *tracker) open() int { return len(t.entries) - t.head }

// begin is the ticket of the first message that is not settled, end the one behind the last that was read.
func (t *tracker) begin() uint64 { return t.base + uint64(t.head) }
func (t *tracker) end() uint64   { return t.base + uint64(len(t.entries)) }
