package redisbroker

import (
	"slices"
	"time"

	"github.com/postrider/postrider"
)

// partition is a subscription's state of one stream. It is guarded by subscription.mu.
type partition struct {
	sub         *subscription
	stream      string // the key
	name        string // topic/partition
	incarnation string
	// mine: according to the list of members, this process may read new entries.
	mine bool
	// rewind, if not empty, is the ID after which the process's own pending entries are read again, before new ones.
	rewind string
	// busy: at the last read, another consumer had pending entries. The process's own pending entries are then lost and
	// not extended; two consumers that both extended theirs would block each other forever.
	busy bool
	// notBefore is the earliest time of the next read, after a Nack.
	notBefore time.Time
	// unsettled are the open deliveries, in order.
	unsettled []*delivery
	// generation is incremented when deliveries are lost, to detect that a concurrent read started before.
	generation int
	// lease fires shortly before others may claim the pending entries.
	lease *time.Timer
}

// right is how long the server may be unreachable before the deliveries are lost. It is less than ClaimAfter.
func (p *partition) right() time.Duration { return p.sub.s.cfg.ClaimAfter / 10 * 9 }

// renew restarts the lease. since is a time before the server extended the pending entries.
func (p *partition) renew(since time.Time) { p.lease.Reset(p.right() - time.Since(since)) }

// expire runs when the lease has ended.
func (p *partition) expire() {
	p.sub.mu.Lock()
	defer p.sub.mu.Unlock()
	if !p.sub.closed && p.pending() {
		p.loseAll()
		p.rewind = "0"
	}
}

// pending reports whether the process has, or may have, pending entries in the stream.
func (p *partition) pending() bool { return len(p.unsettled) > 0 || p.rewind != "" }

// readable reports whether the stream may be read now, and how many entries at most.
func (p *partition) readable(now time.Time) (bool, int) {
	room := p.sub.s.cfg.MaxAckPending - len(p.unsettled)
	return (p.mine || p.rewind != "") && room > 0 && !now.Before(p.notBefore), room
}

// loseAfter revokes the deliveries after an ID, from the last to the first.
func (p *partition) loseAfter(id string) {
	for n := len(p.unsettled); n > 0 && compareIDs(p.unsettled[n-1].id, id) > 0; n-- {
		d := p.unsettled[n-1]
		p.unsettled = p.unsettled[:n-1]
		d.open = false
		close(d.lost)
	}
	p.generation++
}

func (p *partition) loseAll() { p.loseAfter("0-0") } // no entry has this ID

// again schedules a pending entry, and all after it, to be read again.
func (p *partition) again(d *delivery) {
	p.loseAfter(d.id)
	if p.rewind == "" || compareIDs(p.rewind, d.id) >= 0 {
		p.rewind = before(d.id)
	}
}

// integrate processes the result of a read. An entry in progress is not delivered twice. If it comes after an entry that
// was not known to be pending, it is lost and redelivered after that entry.
func (p *partition) integrate(t taken) (delivered []*delivery) {
	if t.incarnation != p.incarnation || t.made {
		p.loseAll()
		p.incarnation = t.incarnation
	}
	if t.happened != "taken" { // pending entries changed their owner, in either direction
		p.loseAll()
	}
	p.rewind, p.busy = t.rewind, t.happened == "busy"
	for _, e := range t.entries {
		if slices.ContainsFunc(p.unsettled, func(d *delivery) bool { return d.id == e.id }) {
			continue
		}
		if n := len(p.unsettled); n > 0 && compareIDs(p.unsettled[n-1].id, e.id) > 0 {
			p.loseAfter(e.id)
		}
		d := &delivery{partition: p, id: e.id, open: true, lost: make(chan struct{})}
		d.out = p.read(e, d)
		p.unsettled = append(p.unsettled, d)
		delivered = append(delivered, d)
	}
	return delivered
}

// removals returns what a read says about entries that the stream lost before they were settled.
func (p *partition) removals(t taken) (errs []error) {
	if n := len(t.gone); n > 0 {
		errs = append(errs, &postrider.RemovedError{Partition: p.name, Messages: int64(n), From: t.gone[0], To: t.gone[n-1], Delivered: true})
	}
	if t.missing > 0 {
		errs = append(errs, &postrider.RemovedError{Partition: p.name, Messages: t.missing, From: t.after, To: t.before})
	}
	return errs
}

// read creates a delivery of an entry.
func (p *partition) read(e entry, d *delivery) *postrider.Delivery {
	m, raw, err := readFields(e.fields)
	m.Attempt = e.deliveries
	incarnation, offset := positionOf(p.incarnation, e.id)
	return &postrider.Delivery{
		Message: m, Err: err, Raw: raw,
		Position:   postrider.Position{Incarnation: incarnation, Partition: p.name, Offset: offset, Mark: markOf(e)},
		Session:    p.sub.s.sessions.n.Load(),
		Deliveries: e.deliveries, Redelivered: e.deliveries > 1,
		Settler: d,
	}
}
