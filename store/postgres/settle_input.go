package postgres

import (
	"fmt"

	"github.com/postrider/postrider/relay"
)

// maxCause is the largest cause that is kept, in bytes.
const maxCause = 4000

// settleInput is a call's settlements, by statement.
type settleInput struct {
	moves moves
	// fromLog is what must be found in the log (or have been put aside already).
	fromLog items
	// parkAgain is all that is to be parked, parkFromLog what is copied from the log when it is not parked yet.
	parkAgain, parkFromLog, dead, deadFromLog, removed items
	// keys are those held and those released.
	held, released, keys items
}

// moves are the settlements' cursors and counters, as columns.
type moves struct {
	partitions                                  []int16
	epochs, positions, pages, delivered, failed []int64
	moved                                       []bool
	snapshots, ceilings, upTos                  []string
}

func (m *moves) fenceArgs(name, owner string) []any {
	return []any{name, owner, m.partitions, m.epochs}
}

func (m *moves) args(name, owner string) []any {
	return []any{name, owner, m.partitions, m.epochs, m.moved, m.positions, m.snapshots, m.ceilings, m.upTos, m.pages,
		m.delivered, m.failed}
}

func (m *moves) add(st relay.Settlement) error {
	c := cursor{snapshot: seesNothing}
	if st.Moved {
		var err error
		if c, err = parseCursor(st.Cursor); err != nil {
			return fmt.Errorf("settle partition %d: %w", st.Partition, err)
		}
	}
	m.partitions = append(m.partitions, int16(st.Partition))
	m.epochs = append(m.epochs, st.Epoch)
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
	epoch         int64
	seq           int64
	key           string
	reason, cause string
	attempts      int
	// attempt is that of the entry in the history, for a cause that is not empty.
	attempt int
	// redrives is that of the record.
	redrives int
	// after is the wait in microseconds, negative for none of its own.
	after int64
}

// items are the parameters of a statement, as columns. A message or key that comes twice counts once, as it came last: a
// statement cannot change a row twice.
type items struct {
	partitions, attempts, attempt, redrives []int32
	epochs, seqs, afters                    []int64
	keys, reasons, causes                   []string
	index                                   map[itemID]int
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
		t.redrives = append(t.redrives, 0)
		t.epochs, t.seqs, t.afters = append(t.epochs, 0), append(t.seqs, 0), append(t.afters, 0)
		t.keys, t.reasons, t.causes = append(t.keys, ""), append(t.reasons, ""), append(t.causes, "")
	}
	t.partitions[i], t.attempts[i], t.attempt[i] = int32(it.partition), int32(it.attempts), int32(it.attempt)
	t.redrives[i] = int32(it.redrives)
	t.epochs[i], t.seqs[i], t.afters[i] = it.epoch, it.seq, it.after
	t.keys[i], t.reasons[i], t.causes[i] = it.key, it.reason, it.cause
}

func (t *items) addMessage(it item) { t.add(itemID{partition: it.partition, seq: it.seq}, it) }

func (t *items) addKey(it item) { t.add(itemID{partition: it.partition, key: it.key}, it) }

func (t *items) args(name, owner string) []any {
	return []any{name, owner, t.partitions, t.epochs, t.seqs, t.keys, t.reasons, t.causes, t.attempts, t.attempt, t.afters,
		t.redrives}
}

// mineSQL begins a statement whose parameters are items: it keeps those whose lease is the caller's. $1 relay, $2 owner.
//
// This statement and those behind it look up one row of a table for each item. They say so by "offset 0", which keeps the
// planner from joining: a plan that was made while a table was empty, and is kept, would read the whole of it for each item
// when it is full.
const mineSQL = `
with mine as materialized (
	select i.* from unnest($3::int4[], $4::int8[], $5::int8[], $6::text[], $7::text[], $8::text[], $9::int4[], $10::int4[],
		$11::int8[], $12::int4[])
		with ordinality as i (part, epoch, number, name, why, what, tries, attempt, after, sent_back, ord)
	cross join lateral (select from {leases} g
		where g.relay = $1::text and g.partition = i.part and g.owner = $2::text and g.epoch = i.epoch offset 0) as g
)`

// gather sorts what the settlements say by statement.
func gather(settlements []relay.Settlement, partitions int) (*settleInput, error) {
	in := &settleInput{}
	for _, st := range settlements {
		if st.Partition < 0 || st.Partition >= partitions {
			return nil, fmt.Errorf("settle: there is no partition %d, the outbox has %d", st.Partition, partitions)
		}
		if err := in.moves.add(st); err != nil {
			return nil, err
		}
		for _, seq := range st.Removed {
			in.removed.addMessage(item{partition: st.Partition, epoch: st.Epoch, seq: seq})
		}
		for _, p := range st.Parked {
			in.park(st, p)
		}
		for _, d := range st.Dead {
			it := item{partition: st.Partition, epoch: st.Epoch, seq: d.Sequence, reason: oneText(d.Reason, maxCause),
				cause: oneText(d.Cause, maxCause), attempts: d.Attempts, attempt: d.Attempts, redrives: d.Redrives}
			if !d.FromLog {
				in.dead.addMessage(it)
				continue
			}
			in.deadFromLog.addMessage(it)
			in.fromLog.addMessage(it)
		}
		in.addKeys(st)
	}
	return in, nil
}

func (in *settleInput) park(st relay.Settlement, p relay.Parked) {
	it := item{partition: st.Partition, epoch: st.Epoch, seq: p.Sequence, reason: string(p.Reason),
		cause: oneText(p.Cause, maxCause), attempts: p.Attempts, redrives: p.Redrives, after: max(p.After.Microseconds(), 0)}
	if p.Reason == relay.ParkRetry {
		it.attempt = p.Attempts
	}
	if p.Waits {
		it.after = -1
	}
	in.parkAgain.addMessage(it)
	if p.FromLog {
		in.parkFromLog.addMessage(it)
		in.fromLog.addMessage(it)
	}
}

func (in *settleInput) addKeys(st relay.Settlement) {
	for _, h := range st.Held {
		it := item{partition: st.Partition, epoch: st.Epoch, seq: h.Sequence, key: h.Key, reason: string(h.Reason),
			cause: oneText(h.Cause, maxCause), attempts: h.Attempts, after: max(h.After.Microseconds(), 0)}
		if h.UntilDecided {
			it.after = -1
		}
		in.held.addKey(it)
		in.keys.addKey(it)
	}
	for _, key := range st.Release {
		it := item{partition: st.Partition, epoch: st.Epoch, key: key}
		in.released.addKey(it)
		in.keys.addKey(it)
	}
}

func (in *settleInput) onlyMoves() bool {
	return in.fromLog.len()+in.parkAgain.len()+in.dead.len()+in.removed.len()+in.keys.len() == 0
}

// without returns the partitions of the settlements that are not among those given.
func (in *settleInput) without(given map[int]bool) []int {
	var out []int
	for _, p := range in.moves.partitions {
		if !given[int(p)] {
			out = append(out, int(p))
		}
	}
	return out
}
