package schedule

import (
	"cmp"
	"slices"

	"github.com/postrider/postrider/store"
)

// Leave begins to hand over the partition: nothing new starts in it.
func (p *Partition[M]) Leave() {
	p.leaving = true
	p.Withdraw()
}

// Rejoin resumes work on a partition that was leaving.
func (p *Partition[M]) Rejoin() {
	p.leaving = false
	for _, it := range p.withdrawn {
		p.schedule.ready(unit[M]{item: it})
	}
	p.withdrawn = nil
	for q := range p.allQueues {
		if !q.running {
			p.reopen(q)
		}
	}
}

// Withdraw removes what waits in the partition from the queues, because the process stops or hands the partition over. When
// nothing is out any more, the partition is unloaded.
func (p *Partition[M]) Withdraw() {
	p.withdrawReady()
	if p.out == 0 {
		p.unload()
	}
}

// Left reports whether a partition that is leaving has nothing in progress and nothing left to record.
func (p *Partition[M]) Left() bool { return p.leaving && p.out == 0 && p.unsent == 0 && !p.settling }

// withdrawReady removes a partition's work from the ready queues and from what waits for calls.
func (p *Partition[M]) withdrawReady() {
	s := p.schedule
	p.withdrawn = append(p.withdrawn, s.readyFresh.without(p)...)
	p.withdrawn = append(p.withdrawn, s.readyParked.without(p)...)
	p.withdrawn = append(p.withdrawn, p.unawait()...)
}

// finishLeaving unloads a partition that is being handed over once none of its calls is in progress.
func (p *Partition[M]) finishLeaving() {
	if p.leaving && p.out == 0 {
		p.unload()
		p.schedule.Wake.Left = true
	}
}

// unload drops what waits in a partition that is being left. Its next owner reads from the cursor, which is before the first
// message that is not done. So messages that wait before delivered ones, or were committed late together with them, are parked, so
// that the cursor passes both; otherwise the delivered ones would be delivered again. With transactions this includes late
// messages if others of their group were parked: the parking is recorded once the cursor has passed it, and the cursor passes
// all of them or none.
func (p *Partition[M]) unload() {
	p.advance()
	before := p.tracker.withLateGroups(p.deliveredUpTo)
	if !p.recordable() {
		before = max(before, p.tracker.lateUntil(p.tracker.begin()))
	}
	for _, it := range p.waiting() {
		if !it.parked && it.ticket < before {
			p.parkUnattempted(it, store.ParkReturned, "the process stopped before it attempted the message")
		} else {
			it.drop()
		}
	}
	if p.cursorMoved { // even if nothing else must be recorded
		p.countOutcome()
	}
}

// waiting removes and returns all messages that wait, of which withdrawReady has removed those without a key, in the order of the log.
func (p *Partition[M]) waiting() []*Item[M] {
	items := p.withdrawn
	p.withdrawn = nil
	for q := range p.allQueues {
		for q.head != nil {
			items = append(items, q.pop())
		}
	}
	clear(p.queues)
	slices.SortStableFunc(items, func(a, b *Item[M]) int { return cmp.Compare(a.ticket, b.ticket) })
	return items
}

// Lose drops a partition whose lease has ended, and the messages that wait in it. Calls in progress notice when they return. It does
// nothing if the partition is gone already.
func (p *Partition[M]) Lose() {
	if p.gone {
		return
	}
	s := p.schedule
	p.gone = true
	p.outlive()
	p.withdrawReady()
	dropAll(p.waiting())
	s.unsettled -= p.unsent + p.inFlight
	p.unsent, p.inFlight = 0, 0
	s.heldKeys -= len(p.held)
	delete(s.partitions, p.Lease.Partition)
}
