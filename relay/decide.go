package relay

import (
	"context"
	"errors"
	"slices"

	"github.com/postrider/postrider/store"
)

// decideAll applies operators' decisions between attempts: when no call on the key is out and everything that this process
// knows about the key is recorded. Due returns decisions again that must wait.
func (r *Relay) decideAll(ctx context.Context, decisions []store.Decision, parts []*partition) error {
	var failed error
	for i := range decisions {
		d := &decisions[i]
		p, ready := r.prepareDecision(d, parts)
		if !ready {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, r.cfg.LeaseTTL)
		err := r.store.Decide(bounded, r.cfg.Name, p.ref(), d.ID)
		cancel()
		r.decided(p, d, err)
		if err != nil && !errors.Is(err, store.ErrLeaseLost) {
			failed = err // the others do not wait for it
		}
		if ctx.Err() != nil {
			break
		}
	}
	return failed
}

// endDecisions resumes the work on keys whose decisions no longer need to be applied: a decision was applied, but the answer
// was lost.
func (r *Relay) endDecisions(open []store.Decision, parts []*partition) {
	for _, p := range parts {
		for key, h := range p.held {
			if h.deciding && !slices.ContainsFunc(open, func(d store.Decision) bool {
				return d.Partition == p.id && d.Key == key && !d.AboutMessage()
			}) {
				h.deciding, h.decideAfter = false, 0
			}
		}
	}
}

// prepareDecision stops the work on a key, and reports whether a decision about it, or about a parked message, can be applied
// now.
func (r *Relay) prepareDecision(d *store.Decision, parts []*partition) (_ *partition, ready bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.partitions[d.Partition]
	if p == nil || p.leaving || !slices.Contains(parts, p) {
		return nil, false
	}
	if d.AboutMessage() {
		return p, !r.worksOnParked(p, d)
	}
	h := p.held[d.Key]
	if h == nil { // nothing of the key is in memory
		return p, r.callsOut[work{key: d.Key}] == 0
	}
	if !h.deciding {
		h.deciding = true
		if q := p.queues[d.Key]; q != nil && !q.running {
			r.unloadQueue(p, q)
		}
	}
	if p.works(d.Key) || r.callsOut[work{key: d.Key}] > 0 {
		h.decideAfter = 0
		return p, false
	}
	if h.decideAfter == 0 {
		h.decideAfter = p.outcomes
		if p.count > 0 {
			signal(r.settleWake)
		}
	}
	return p, p.stored >= h.decideAfter && h.blocks == 0 && h.unrecorded == 0 && !h.releasing
}

// worksOnParked reports whether the parked message of a decision is in memory, or a call of an earlier lease is out for it.
func (r *Relay) worksOnParked(p *partition, d *store.Decision) bool {
	w := work{key: d.Key}
	if d.Key == "" {
		w = work{sequence: d.Sequence}
	}
	_, busy := p.busy[d.Sequence]
	return busy || r.callsOut[w] > 0
}

// decided resumes the work on a key.
func (r *Relay) decided(p *partition, d *store.Decision, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := p.held[d.Key]; h != nil && err == nil && !d.AboutMessage() {
		h.deciding, h.decideAfter = false, 0
	}
	switch {
	case p.gone:
	case errors.Is(err, store.ErrLeaseLost):
		r.taken(p)
	case err == nil:
		r.cfg.Logger.Info("operator's decision was taken up", "relay", r.cfg.Name, "key", d.Key, "message", d.MessageID, "verb", d.Verb, "by", d.By)
	}
	signal(r.dueWake)
}

// decides reports whether a decision about a key is waiting to be applied.
func (p *partition) decides(key string) bool {
	h := p.held[key]
	return h != nil && h.deciding
}

// unloadQueue drops what waits in the queue of a held key: the store already has it among the parked messages of the key, or
// it is parked now.
func (r *Relay) unloadQueue(p *partition, q *keyQueue) {
	r.sched.remove(q)
	for q.head != nil {
		r.parkQueuedMessage(q.pop())
	}
	if !q.running {
		delete(p.queues, q.key)
	}
}
