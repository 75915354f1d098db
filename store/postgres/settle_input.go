package postgres

import (
	"fmt"

	"github.com/postrider/postrider/store"
)

// maxCause is the maximum length of a stored cause, in bytes.
const maxCause = 4000

// settleInput holds the settlements of a call, by statement.
type settleInput struct {
	moves moves
	// fromLog has the messages that must be in the log.
	fromLog items
	// parkAgain has the messages to update if they are parked, parkFromLog those to copy from the log.
	parkAgain, parkFromLog, dead, deadFromLog, removed items
	// keys has both the held keys and the released ones.
	held, released, keys items
	unrouted             unroutedInput
}

// moves holds the cursors and counters of the settlements, as columns.
type moves struct {
	partitions                                   []int16
	numbers, positions, pages, delivered, failed []int64
	moved                                        []bool
	tokens, snapshots, ceilings, upTos           []string
	contents                                     [][]byte
}

func (m *moves) fenceArgs(name string) []any { return []any{name, m.partitions, m.tokens} }

func (m *moves) args(name string) []any {
	return []any{name, m.partitions, m.numbers, m.contents, m.moved, m.positions, m.snapshots, m.ceilings, m.upTos, m.pages,
		m.delivered, m.failed}
}

func (m *moves) add(st *store.Settlement) error {
	c := cursor{snapshot: seesNothing}
	if st.Moved {
		var err error
		if c, err = parseCursor(st.Cursor); err != nil {
			return fmt.Errorf("settle partition %d: %w", st.Partition, err)
		}
	}
	content := st.Digest()
	m.partitions = append(m.partitions, int16(st.Partition))
	m.tokens = append(m.tokens, st.Token)
	m.numbers = append(m.numbers, st.Number)
	m.contents = append(m.contents, content[:])
	m.moved = append(m.moved, st.Moved)
	m.positions = append(m.positions, c.position)
	m.snapshots = append(m.snapshots, c.snapshot)
	m.ceilings = append(m.ceilings, c.ceiling)
	m.upTos = append(m.upTos, c.upTo)
	m.pages = append(m.pages, c.page)
	m.delivered = append(m.delivered, st.DeliveredCount)
	m.failed = append(m.failed, st.FailedCount)
	return nil
}

// item is one message or key that a statement works on.
type item struct {
	partition     int
	seq           int64
	key           string // of a message to dead-letter: who has discarded it, "" for nobody
	reason, cause string
	attempts      int
	// attempt is that of the history entry, if cause is not empty.
	attempt int
	// after is the wait in microseconds; negative: no wait of its own.
	after int64
}

// items are the parameters of a statement, as columns. If a message or key occurs twice, the last occurrence counts: a statement
// cannot change a row twice.
type items struct {
	partitions, attempts, attempt []int32
	seqs, afters                  []int64
	keys, reasons, causes         []string
	index                         map[itemID]int
}

type itemID struct {
	partition int
	seq       int64
	key       string
}

func (t *items) len() int { return len(t.partitions) }

func (t *items) add(id itemID, it item) {
	if t.index == nil {
		t.index = make(map[itemID]int)
	}
	i, again := t.index[id]
	if !again {
		i = t.len()
		t.index[id] = i
		t.partitions, t.attempts, t.attempt = append(t.partitions, 0), append(t.attempts, 0), append(t.attempt, 0)
		t.seqs, t.afters = append(t.seqs, 0), append(t.afters, 0)
		t.keys, t.reasons, t.causes = append(t.keys, ""), append(t.reasons, ""), append(t.causes, "")
	}
	t.partitions[i], t.attempts[i], t.attempt[i] = int32(it.partition), int32(it.attempts), int32(it.attempt)
	t.seqs[i], t.afters[i] = it.seq, it.after
	t.keys[i], t.reasons[i], t.causes[i] = it.key, it.reason, it.cause
}

func (t *items) has(it item) bool {
	_, has := t.index[itemID{partition: it.partition, seq: it.seq}]
	return has
}

func (t *items) addMessage(it item) { t.add(itemID{partition: it.partition, seq: it.seq}, it) }

func (t *items) addKey(it item) { t.add(itemID{partition: it.partition, key: it.key}, it) }

func (t *items) args(name string) []any {
	return []any{name, t.partitions, t.seqs, t.keys, t.reasons, t.causes, t.attempts, t.attempt, t.afters}
}

// mineSQL begins a statement whose parameters are items. $1 relay.
//
// This statement and those built on it look up one table row per item. They say so with "offset 0", which keeps the planner from
// joining: a cached plan from when a table was empty would read the whole table for each item once it is full.
const mineSQL = `
with mine as materialized (
	select i.* from unnest($2::int4[], $3::int8[], $4::text[], $5::text[], $6::text[], $7::int4[], $8::int4[], $9::int8[])
		with ordinality as i (part, number, name, why, what, tries, attempt, after, ord)
	where $1::text is not null
)`

// gather sorts the contents of settlements by statement.
func gather(name string, settlements []store.Settlement, partitions int) (*settleInput, error) {
	in := &settleInput{}
	for i := range settlements {
		st := &settlements[i]
		if st.Partition < 0 || st.Partition >= partitions {
			return nil, fmt.Errorf("settle: there is no partition %d, the outbox has %d", st.Partition, partitions)
		}
		if err := in.moves.add(st); err != nil {
			return nil, err
		}
		for _, seq := range st.Removed {
			in.removed.addMessage(item{partition: st.Partition, seq: seq})
		}
		for _, p := range st.Parked {
			in.park(st.Partition, p)
		}
		for _, d := range st.Dead {
			in.addDead(name, st.Partition, d)
		}
		in.addKeys(st)
		in.unrouted.add(st)
	}
	return in, nil
}

// park parks a message from the log, or again. If a message parked from the log changes within the same settlements, its last
// state is parked.
func (in *settleInput) park(partition int, p store.ParkOutcome) {
	it := item{partition: partition, seq: p.Sequence, reason: string(p.Reason),
		cause: oneText(p.Cause, maxCause), attempts: p.Attempts, after: max(p.After.Microseconds(), 0)}
	if p.Reason == store.ParkRetry {
		it.attempt = p.Attempts
	}
	if p.Waits {
		it.after = -1
	}
	if p.FromLog {
		in.fromLog.addMessage(it)
	}
	if p.FromLog || in.parkFromLog.has(it) {
		in.parkFromLog.addMessage(it)
		return
	}
	in.parkAgain.addMessage(it)
}

func (in *settleInput) addDead(name string, partition int, d store.DeadOutcome) {
	it := item{partition: partition, seq: d.Sequence, reason: oneText(d.Reason, maxCause),
		cause: oneText(d.Cause, maxCause), attempts: d.Attempts, attempt: d.Attempts}
	if d.Discarded {
		it.key = name
	}
	if !d.FromLog || in.parkFromLog.has(it) {
		in.dead.addMessage(it)
		return
	}
	in.deadFromLog.addMessage(it)
	in.fromLog.addMessage(it)
}

func (in *settleInput) addKeys(st *store.Settlement) {
	for _, h := range st.Held {
		it := item{partition: st.Partition, seq: h.Sequence, key: h.Key, reason: string(h.Reason),
			cause: oneText(h.Cause, maxCause), attempts: h.Attempts, after: max(h.After.Microseconds(), 0)}
		if h.UntilDecided {
			it.after = -1
		}
		in.held.addKey(it)
		in.keys.addKey(it)
	}
	for _, key := range st.Release {
		it := item{partition: st.Partition, key: key}
		in.released.addKey(it)
		in.keys.addKey(it)
	}
}

func (in *settleInput) onlyMoves() bool {
	return in.fromLog.len()+in.parkAgain.len()+in.dead.len()+in.removed.len()+in.keys.len() == 0
}
