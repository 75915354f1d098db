package schedule

import (
	"slices"
	"time"

	"github.com/postrider/postrider/store"
)

// Outcome says what became of a message that was called.
type Outcome struct {
	Kind Kind
	// Failed: it counts as a failed attempt.
	Failed bool
	// After is the time until the next attempt of a Postponed message.
	After time.Duration
	// Reason, Cause and Attempts are recorded with it.
	Reason, Cause string
	Attempts      int
}

// Kind is the kind of an Outcome.
type Kind int

// The kinds.
const (
	Delivered   Kind = iota
	Unattempted      // it returns to the front of its queue, with those called after it
	Postponed        // it is parked and holds its key
	Dead             // it is dead-lettered
	Discarded        // its dead letter is written as discarded, and does not hold its key
)

// Complete processes the outcomes of one call of Take's messages. outcome returns that of a message by its index; afterDead says
// that a message before it in its queue was dead-lettered by the same call. It is not asked for messages that are parked or
// requeued because of one before them. Without outcome, all were delivered.
//
// Nor is it asked for unfinished messages, and those called after them, which are not being worked on any more. The unfinished messages in a
// queue follow one another, after ones that are done. They are parked as slow, and are a call of their own from now on. Complete returns
// these calls; when one has returned, it is completed too.
func (s *Schedule[M]) Complete(batch []*Item[M], outcome func(i int, afterDead bool) Outcome) (open [][]*Item[M]) {
	s.returned(batch)
	for i := 0; i < len(batch); {
		j := i + 1
		for j < len(batch) && SameQueue(batch[i], batch[j]) {
			j++
		}
		p, items := batch[i].partition, batch[i:j]
		if k := slices.IndexFunc(items, func(it *Item[M]) bool { return it.Unfinished }); k >= 0 {
			open = append(open, p.continued(items, k, i, outcome))
		} else {
			p.complete(items, i, outcome)
		}
		i = j
	}
	return open
}

// continued processes the outcomes of messages of one queue, or of one message without a key, that continue from an index. It returns those that
// do.
func (p *Partition[M]) continued(items []*Item[M], from, first int, outcome func(i int, afterDead bool) Outcome) (open []*Item[M]) {
	until := from + 1
	for until < len(items) && items[until].Unfinished {
		until++
	}
	done, open, rest := items[:from], slices.Clone(items[from:until]), items[until:]
	q := items[0].queue
	p.out -= len(done) + len(rest)
	p.schedule.batches[open[0]] = open
	if q != nil {
		q.out = len(open)
	}
	if p.gone {
		dropAll(done)
		dropAll(rest)
		return open
	}
	afterDead := false
	for i, it := range done {
		if o := outcome(first+i, afterDead); o.Kind == Delivered {
			p.deliver(it)
		} else {
			p.fail(it, &o)
			afterDead = true
		}
	}
	if open[0].holdsUp() {
		p.parkSlow(open, rest)
	} else if len(rest) > 0 { // all are parked already
		p.requeue(q, rest)
	}
	return open
}

// complete processes the outcomes of messages of one queue, or of one message without a key; first is the index of the first.
func (p *Partition[M]) complete(items []*Item[M], first int, outcome func(i int, afterDead bool) Outcome) {
	q := items[0].queue
	if !p.comeBack(items) {
		return
	}
	defer p.endCall(q)
	afterDead := false
	for i, it := range items {
		if outcome == nil {
			p.deliver(it)
			continue
		}
		switch o := outcome(first+i, afterDead); {
		case o.Kind == Delivered:
			p.deliver(it)
		case o.Kind == Unattempted:
			p.requeue(q, items[i:])
			return
		case p.fail(it, &o):
			p.parkQueued(q, items[i+1:])
			return
		default:
			afterDead = true
		}
	}
}

// comeBack records that messages of one queue are no longer out. It reports whether their partition is still held; if not, they
// are dropped.
func (p *Partition[M]) comeBack(items []*Item[M]) bool {
	p.out -= len(items)
	if q := items[0].queue; q != nil {
		q.running, q.out = false, 0
	}
	if p.gone {
		dropAll(items)
	}
	return !p.gone
}

// endCall ends the processing of messages that are no longer out.
func (p *Partition[M]) endCall(q *queue[M]) {
	p.reopen(q)
	p.finishLeaving()
}

func dropAll[M any](items []*Item[M]) {
	for _, it := range items {
		it.drop()
	}
}

// deliver records a success.
func (p *Partition[M]) deliver(it *Item[M]) {
	if it.parked {
		p.pending.Removed = append(p.pending.Removed, it.Sequence)
	} else {
		p.pending.Delivered = append(p.pending.Delivered, it.Sequence)
	}
	p.tracker.deliver(it.ticket)
	p.deliveredUpTo = max(p.deliveredUpTo, it.ticket+1)
	p.countOutcome()
	p.end(it)
}

// end drops a finished item, and asks for its held key to be released if it was the last of its run.
func (p *Partition[M]) end(it *Item[M]) {
	if it.run != nil {
		it.run.left--
		if h := p.held[it.run.key]; it.run.left == 0 && it.run.key != "" && h != nil {
			p.askRelease(it.run.key, h)
		}
	}
	it.drop()
}

// fail records a failure and reports whether it blocks the queue of the message.
func (p *Partition[M]) fail(it *Item[M], o *Outcome) (stops bool) {
	if o.Failed {
		p.pending.FailedCount++
	}
	if o.Kind == Dead || o.Kind == Discarded {
		return p.dead(it, o)
	}
	pk := store.ParkOutcome{Reason: store.ParkReason(o.Reason), Cause: o.Cause, Attempts: o.Attempts, After: o.After}
	if it.Key != "" {
		p.block(it, store.HeldKey{Reason: pk.Reason, Cause: o.Cause, Attempts: o.Attempts, After: o.After})
		pk.Waits, pk.After = true, 0
	}
	p.park(it, pk)
	it.drop()
	return it.queue != nil
}

// dead moves a message to the dead letters and reports whether that blocks its key.
func (p *Partition[M]) dead(it *Item[M], o *Outcome) (stops bool) {
	if !it.parked {
		p.parkTicket(it)
	}
	p.outdated[it.Sequence] = struct{}{}
	p.pending.Dead = append(p.pending.Dead, store.DeadOutcome{
		Sequence: it.Sequence, Key: it.Key, FromLog: !it.parked, Reason: o.Reason, Cause: o.Cause, Attempts: o.Attempts,
		Discarded: o.Kind == Discarded,
	})
	p.countOutcome()
	if it.Key != "" && p.schedule.cfg.HoldOnDead && o.Kind == Dead {
		p.block(it, store.HeldKey{Reason: store.ParkDead, Cause: o.Reason + ": " + o.Cause, Attempts: o.Attempts, UntilDecided: true})
		it.drop()
		return true
	}
	if it.queue != nil && !p.tx.is(it.queue) { // of a transaction queue, the next transaction records it
		it.queue.deaths++
	}
	p.end(it)
	return false
}

// block records that a message blocks its key.
func (p *Partition[M]) block(it *Item[M], h store.HeldKey) {
	h.Key, h.Sequence = it.Key, it.Sequence
	p.hold(h.Key).blocks++
	p.pending.Held = append(p.pending.Held, h)
	p.countOutcome()
}

// park parks a message, or records what has changed about a parked one.
func (p *Partition[M]) park(it *Item[M], pk store.ParkOutcome) {
	pk.Sequence, pk.Key, pk.FromLog = it.Sequence, it.Key, !it.parked
	if !it.parked {
		p.parkTicket(it)
	}
	if pk.Waits {
		p.hold(pk.Key).unrecorded++
	} else {
		p.outdated[it.Sequence] = struct{}{}
	}
	p.pending.Parked = append(p.pending.Parked, pk)
	p.countOutcome()
}

// parkQueued parks everything after a failed message: the later messages of its call, and what waits in its queue.
func (p *Partition[M]) parkQueued(q *queue[M], out []*Item[M]) {
	if q == nil {
		return
	}
	for _, it := range out {
		p.parkQueuedMessage(it)
	}
	for q.head != nil {
		p.parkQueuedMessage(q.pop())
	}
}

func (p *Partition[M]) parkQueuedMessage(it *Item[M]) {
	if !it.parked || it.run.key == "" { // otherwise it is parked for its key already
		p.park(it, store.ParkOutcome{Reason: store.ParkHeld, Attempts: it.Attempts, Waits: true})
	}
	it.drop()
}

// parkUnattempted parks a message that was not attempted, due at once, after the messages of its key that are parked already.
func (p *Partition[M]) parkUnattempted(it *Item[M], reason store.ParkReason, cause string) {
	if it.Key != "" && p.held[it.Key] == nil {
		p.block(it, store.HeldKey{Reason: reason, Cause: cause, Attempts: it.Attempts})
	}
	p.park(it, store.ParkOutcome{Reason: reason, Attempts: it.Attempts, Waits: it.Key != ""})
	it.drop()
}

// countOutcome counts one outcome that is to be recorded.
func (p *Partition[M]) countOutcome() {
	s := p.schedule
	p.unsent++
	p.outcomes++
	s.unsettled++
	s.Wake.Settle = s.Wake.Settle || s.unsettled == 1 || s.unsettled >= s.cfg.SettleBatch
}
