package schedule

import (
	"maps"
	"time"

	"github.com/postrider/postrider/store"
)

// Partition is one partition that this process holds. What always holds of it, with the test function that checks
// each, in every reachable state of small cases (check_test.go, model_test.go):
//
//	checkCounts    a message in memory is in one place: a queue, ready, in a call, awaiting an earlier call, or withdrawn
//	checkQueues    a queue with messages is ready, running (in a call, awaiting one, or waiting for a settlement), or stopped (by
//	               an unrecorded dead letter, or because the partition is being left); a ready one is neither of the others
//	checkParked    a message from the log that was parked has its ticket here until the recorded cursor has passed it
//	checkSettling  at most one settlement, or transaction of the transaction queue, may be applied and is not answered
//	mayCall        a message is called after those of its key that precede it, and no other call works on the key
//	checkDatabase  the recorded cursor passes only what is delivered, parked or a dead letter; a message that waits holds its key
//	checkEnd       whatever has happened, each message comes to its end, and nothing is left in memory
type Partition[M any] struct {
	// Lease is what settlements are recorded under.
	Lease store.LeaseRef
	// Until is when the caller must have stopped delivering; nothing starts from then on. The caller sets it.
	Until time.Time

	schedule *Schedule[M]
	number   int64 // of the last settlement known to be applied
	position int64 // of the cursor that is known to be recorded
	// leaving: the partition is being handed over; nothing new starts. gone: the lease was released or lost.
	leaving, gone bool

	tracker tracker
	// unread are messages that the last owner parked beyond its cursor: they will be read again, and skipped. None are left
	// once the log has been read to its end.
	unread map[int64]struct{}
	queues map[string]*queue[M] // by key
	tx     *txQueue[M]          // with transactions only
	held   map[string]*heldKey
	// partial: keys may be held that are not in memory.
	partial bool
	// outdated are messages whose state in the store may be out of date, because they are in memory or their outcome is not known to be
	// recorded. A poll must not return them. Those of a held key are not among them: the whole key is left out.
	outdated map[int64]struct{}
	out      int // messages out for delivery
	// parkedAhead are messages that were read from the log and parked, by sequence, with their tickets, until the recorded cursor
	// passes them. early are those that became due before that, with their held keys.
	parkedAhead  map[int64]uint64
	early        map[int64]string
	cursorTicket uint64 // the ticket after the recorded cursor
	// deliveredUpTo is the ticket after the last delivered message that was not parked.
	deliveredUpTo uint64
	withdrawn     []*Item[M] // messages without a key that were waiting when the partition began to leave
	unrouted      []unrouted // messages that no relay takes and that the cursor has not passed

	pending          store.Settlement // outcomes since the last settlement
	unsent           int              // number of those outcomes
	inFlight         int              // number of outcomes in the settlement in progress
	settling         bool             // a settlement is in progress, or waits to be repeated, or a transaction will record one
	cursorMoved      bool             // the cursor has moved since
	outcomes         uint64           // number of outcomes so far
	outcomesRecorded uint64           // number of those that are recorded
	recordedTicket   uint64           // the ticket up to which everything is recorded
	settledAt        time.Time        // when the last settlement was applied
}

// Hold adds a partition whose lease was granted.
func (s *Schedule[M]) Hold(l *store.Lease) *Partition[M] {
	p := &Partition[M]{
		Lease: l.Ref(), schedule: s, number: l.Settled, position: l.Cursor.Position, cursorTicket: 1,
		// 0 is the ticket of messages that were not read from the log.
		tracker: tracker{base: 1, passed: 1, cursor: l.Cursor},
		queues:  make(map[string]*queue[M]), held: make(map[string]*heldKey), outdated: make(map[int64]struct{}),
		parkedAhead: make(map[int64]uint64), early: make(map[int64]string),
	}
	if seqs := l.Parked.Sequences; len(seqs) > 0 {
		p.unread = make(map[int64]struct{}, len(seqs))
		for _, seq := range seqs {
			p.unread[seq] = struct{}{}
		}
	}
	if s.cfg.Transactions {
		p.tx = &txQueue[M]{queue: queue[M]{partition: p}, working: make(map[string]struct{})}
	}
	s.partitions[l.Partition] = p
	if l.Parked.More {
		p.partial = true
		s.unloading()
	}
	for _, key := range l.Parked.Keys {
		p.hold(key)
	}
	return p
}

// Leaving reports whether the partition is being left.
func (p *Partition[M]) Leaving() bool { return p.leaving }

// Gone reports whether the partition was lost or released.
func (p *Partition[M]) Gone() bool { return p.gone }

// Unread reports whether the log may still return messages that the partition's last owner parked.
func (p *Partition[M]) Unread() bool { return len(p.unread) > 0 }

// ReadToEnd says that the log was read to its end. A message that was parked beyond the cursor, and was not read by now, is no longer in
// the log: it is not waited for.
func (p *Partition[M]) ReadToEnd() { p.unread = nil }

// Position is that of the cursor that is known to be recorded.
func (p *Partition[M]) Position() int64 { return p.position }

// Open is the number of messages read from the log that have no outcome yet, or come after one that has none.
func (p *Partition[M]) Open() int { return p.tracker.open() }

// Mark returns a mark after all messages that were read so far, for RecordedUntil.
func (p *Partition[M]) Mark() uint64 { return p.tracker.end() }

// RecordedUntil reports whether everything before a mark is done and recorded.
func (p *Partition[M]) RecordedUntil(mark uint64) bool {
	p.advance()
	return p.tracker.begin() >= mark && (p.recordedTicket >= mark || p.unsent == 0 && !p.settling)
}

func (p *Partition[M]) advance() { p.cursorMoved = p.tracker.advance() || p.cursorMoved }

// Announce adds a batch that was read after a position to the order of the log. It returns the ticket of its first message; the
// others follow by one. Each of them is then passed to Admit or Skip.
func (p *Partition[M]) Announce(b *store.Batch, after int64) (ticket uint64) {
	return p.tracker.add(b, after)
}

// Admit adds a message from the log: it waits in a queue, or is parked.
func (p *Partition[M]) Admit(it *Item[M], ticket uint64, lookup *HeldLookup, now time.Time) {
	it.ticket = ticket
	p.load(it, &p.schedule.Fresh, now)
	isHeld := p.findHeld(it.Key, lookup) != nil
	switch {
	case p.wasParked(it):
		it.drop()
	case p.tx != nil: // parked when it reaches the front of the transaction queue
		p.schedule.enqueue(it)
	case it.Delay > 0:
		p.park(it, store.ParkOutcome{Reason: store.ParkDelayed, After: it.Delay})
		it.drop()
	case isHeld:
		p.park(it, store.ParkOutcome{Reason: store.ParkHeld, Waits: true})
		it.drop()
	default:
		p.schedule.enqueue(it)
	}
}

// Skip marks a message from the log that the relay does not take as done. Unless another relay takes it, it is counted as unrouted
// when the cursor passes it.
func (p *Partition[M]) Skip(it *Item[M], ticket uint64, topic string, elsewhere bool) {
	it.ticket = ticket
	if p.wasParked(it) {
		return
	}
	p.tracker.finish(ticket)
	if !elsewhere {
		p.unrouted = append(p.unrouted, unrouted{ticket, store.UnroutedCount{Topic: topic, Count: 1}})
	}
}

// wasParked reports whether a message read from the log had been parked by the partition's last owner, and marks it as done if so.
func (p *Partition[M]) wasParked(it *Item[M]) bool {
	if len(p.unread) == 0 {
		return false
	}
	if _, was := p.unread[it.Sequence]; !was {
		return false
	}
	delete(p.unread, it.Sequence)
	p.parkTicket(it)
	p.deliveredUpTo = max(p.deliveredUpTo, it.ticket+1) // it may have been delivered by then
	p.schedule.Wake.Settle = true                       // a parked message may wait for the cursor
	return true
}

// parkTicket marks a message from the log as done: it is parked or dead-lettered.
func (p *Partition[M]) parkTicket(it *Item[M]) {
	p.tracker.park(it.ticket)
	p.parkedAhead[it.Sequence] = it.ticket
}

// AdmitRun adds the first parked messages of a held key, in order, whose next attempt is due. If there are none, the key can be
// released.
func (p *Partition[M]) AdmitRun(key string, items []Item[M], now time.Time) {
	h := p.held[key]
	if h == nil {
		h = p.hold(key)
	}
	if p.works(key) || h.busy() {
		return // what was read is older than the state in memory
	}
	if len(items) == 0 {
		p.askRelease(key, h)
		return
	}
	for i := range items {
		if p.isEarly(items[i].Sequence, key) {
			items = items[:i]
			break
		}
	}
	all := &run{key: key, left: len(items)}
	for i := range items {
		p.loadParked(&items[i], all, now)
		p.schedule.enqueue(&items[i])
	}
}

// AdmitDue adds one message that waited independently: without a key, or delayed.
func (p *Partition[M]) AdmitDue(it *Item[M], lookup *HeldLookup, now time.Time) {
	if _, outdated := p.outdated[it.Sequence]; outdated || p.isEarly(it.Sequence, "") {
		return
	}
	p.loadParked(it, &run{left: 1}, now)
	p.outdated[it.Sequence] = struct{}{}
	if p.findHeld(it.Key, lookup) != nil { // the key is held: queue the message in it
		p.parkQueuedMessage(it)
		return
	}
	p.schedule.enqueue(it)
}

func (p *Partition[M]) loadParked(it *Item[M], r *run, now time.Time) {
	it.run, it.parked = r, true
	p.load(it, &p.schedule.Parked, now)
}

// isEarly reports whether a parked message must not be delivered yet because the recorded cursor has not passed it. It is
// then left to a later poll, together with the key that it holds or waits for. If it were delivered and removed, and the
// database crashed with the cursor before it, it would be read from the log, delivered and counted again, without those
// messages of its key that are dead letters. With transactions its side effect would run twice: its transaction moves no cursor.
func (p *Partition[M]) isEarly(seq int64, key string) bool {
	if p.ahead(seq) {
		p.early[seq] = key
		return true
	}
	return false
}

func (p *Partition[M]) ahead(seq int64) bool {
	if _, unread := p.unread[seq]; unread {
		return true
	}
	_, is := p.parkedAhead[seq]
	return is
}

// pass records that the recorded cursor has reached a ticket. It removes the parked messages before it, and reports whether
// one that was due is among them.
func (p *Partition[M]) pass(ticket uint64) bool {
	if p.cursorTicket == ticket {
		return false
	}
	p.cursorTicket = ticket
	maps.DeleteFunc(p.parkedAhead, func(_ int64, t uint64) bool { return t < ticket })
	for seq := range p.early {
		if !p.ahead(seq) {
			return true
		}
	}
	return false
}

// Busy adds to keys the held keys of the partition, and to sequences its messages that wait independently, that are being
// worked on or that must wait for the cursor. They must not be read as due.
func (p *Partition[M]) Busy(keys []string, sequences []int64) ([]string, []int64) {
	for key, h := range p.held {
		if p.works(key) || h.busy() {
			keys = append(keys, key)
		}
	}
	for seq := range p.outdated {
		sequences = append(sequences, seq)
	}
	for seq, key := range p.early {
		switch {
		case !p.ahead(seq):
			delete(p.early, seq)
		case key != "":
			keys = append(keys, key)
		default:
			sequences = append(sequences, seq)
		}
	}
	return keys, sequences
}

// works reports whether messages of a key are being worked on or wait in the queue of the key. Messages in the transaction
// queue count only while they are in a transaction.
func (p *Partition[M]) works(key string) bool {
	return p.queues[key] != nil || p.tx.works(key)
}
