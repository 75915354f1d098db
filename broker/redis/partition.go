package redisbroker

import (
	"slices"
	"time"

	"github.com/postrider/postrider"
)

// partition is what a subscription knows of one stream. It is guarded by subscription.mu.
type partition struct {
	sub    *subscription
	stream string // the key
	name   string // topic/partition
	epoch  string
	// mine: by the members' names it is this process's turn to read on.
	mine bool
	// rewind, if not empty, is the ID behind which the process's own pending entries are to be read again, before new ones.
	rewind string
	// busy: another consumer had something pending here when the stream was looked at last. Own entries that are pending too
	// are lost, and not kept from being claimed: two that had both would wait for each other for good.
	busy bool
	// notBefore is when the partition may be read again after a Nack.
	notBefore time.Time
	// unsettled are the open deliveries, in order.
	unsettled []*delivery
	// generation rises when deliveries are lost, so that what is being read meanwhile is known to come too early.
	generation int
	// lease fires when others may claim what this process has pending.
	lease *time.Timer
}

// right is how long the server was not heard of before others may claim what is pending here: less than they wait.
func (p *partition) right() time.Duration { return p.sub.s.cfg.ClaimAfter / 10 * 9 }

// renew counts the lease from a time before which the server had not yet touched what is pending.
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

// pending says whether the process has, or may have, pending entries here.
func (p *partition) pending() bool { return len(p.unsettled) > 0 || p.rewind != "" }

// readable says whether something may be read now, and how many entries at most.
func (p *partition) readable(now time.Time) (bool, int) {
	room := p.sub.s.cfg.MaxAckPending - len(p.unsettled)
	return (p.mine || p.rewind != "") && room > 0 && !now.Before(p.notBefore), room
}

// loseBehind takes the right to work on what stands behind an ID away, from the last to the first.
func (p *partition) loseBehind(id string) {
	for n := len(p.unsettled); n > 0 && compareIDs(p.unsettled[n-1].id, id) > 0; n-- {
		d := p.unsettled[n-1]
		p.unsettled = p.unsettled[:n-1]
		d.open = false
		close(d.lost)
	}
	p.generation++
}

func (p *partition) loseAll() { p.loseBehind("0-0") } // no entry has this ID

// again has an entry that is pending here read again, with all behind it.
func (p *partition) again(d *delivery) {
	p.loseBehind(d.id)
	if p.rewind == "" || compareIDs(p.rewind, d.id) >= 0 {
		p.rewind = before(d.id)
	}
}

// integrate takes in what was read. What is under way already is not delivered twice; if it stands behind something that
// was not known to be pending, it is lost and comes again behind that.
func (p *partition) integrate(t taken) (delivered []*delivery) {
	if t.epoch != p.epoch || t.made {
		p.loseAll()
		p.epoch = t.epoch
	}
	if t.happened != "taken" { // what was pending here is another's, or what was another's is pending here
		p.loseAll()
	}
	p.rewind, p.busy = t.rewind, t.happened == "busy"
	for _, e := range t.entries {
		if slices.ContainsFunc(p.unsettled, func(d *delivery) bool { return d.id == e.id }) {
			continue
		}
		if n := len(p.unsettled); n > 0 && compareIDs(p.unsettled[n-1].id, e.id) > 0 {
			p.loseBehind(e.id)
		}
		d := &delivery{partition: p, id: e.id, open: true, lost: make(chan struct{})}
		d.out = p.read(e, d)
		p.unsettled = append(p.unsettled, d)
		delivered = append(delivered, d)
	}
	return delivered
}

// read makes a delivery of an entry.
func (p *partition) read(e entry, d *delivery) *postrider.Delivery {
	m, raw, err := readFields(e.fields)
	m.Attempt = e.deliveries
	epoch, offset := positionOf(p.epoch, e.id)
	return &postrider.Delivery{
		Message: m, Err: err, Raw: raw,
		Position:   postrider.Position{Epoch: epoch, Partition: p.name, Offset: offset, Mark: markOf(e)},
		Session:    p.sub.s.sessions.n.Load(),
		Deliveries: e.deliveries, Redelivered: e.deliveries > 1,
		Settler: d,
	}
}
