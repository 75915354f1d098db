package schedule

import "github.com/postrider/postrider/store"

// heldKey is a held key in memory.
type heldKey struct {
	// unrecorded counts queued messages whose parking is not recorded yet; until it is, the key cannot be released.
	unrecorded int
	// blocks counts failures of the blocking message that are not recorded yet; while there are any, the store's state of the
	// key is out of date.
	blocks int
	// releasing: its release was requested and has not been answered.
	releasing bool
	// deciding: an operator's decision about the key must be applied once decideAfter outcomes of the partition are recorded:
	// those up to the end of the last work on the key. Until then no work on the key starts.
	deciding    bool
	decideAfter uint64
}

// busy reports whether the store's state of the key is out of date or must not be acted on.
func (h *heldKey) busy() bool { return h.blocks > 0 || h.releasing || h.deciding }

// HeldLookup is what one read of the store must know about held keys that are not in memory: what the store says, and what changes
// until the messages that were read are admitted. During that time only this process changes which keys are held in its
// partitions; operators leave a key held for the relay to release.
type HeldLookup struct{ held map[string]bool }

// BeginLookup is called before the store is read, EndLookup once the messages are admitted.
func (s *Schedule[M]) BeginLookup() *HeldLookup {
	v := &HeldLookup{held: make(map[string]bool)}
	s.lookups[v] = struct{}{}
	return v
}

// EndLookup ends a lookup.
func (s *Schedule[M]) EndLookup(v *HeldLookup) { delete(s.lookups, v) }

// MayHold reports whether a key may be held that is not in memory: the caller looks it up.
func (p *Partition[M]) MayHold(key string) bool {
	return key != "" && p.partial && p.held[key] == nil
}

// Found records keys that the caller looked up and that are held.
func (v *HeldLookup) Found(keys []string) {
	for _, key := range keys {
		if _, newer := v.held[key]; !newer {
			v.held[key] = true
		}
	}
}

// findHeld returns a held key, loading it into memory if only the store has it; nil if it is not held.
func (p *Partition[M]) findHeld(key string, lookup *HeldLookup) *heldKey {
	h := p.held[key]
	if h == nil && key != "" && lookup.held[key] {
		h = p.hold(key)
	}
	return h
}

// hold marks a key as held in memory.
func (p *Partition[M]) hold(key string) *heldKey {
	h := p.held[key]
	if h == nil {
		h = &heldKey{}
		p.held[key] = h
		s := p.schedule
		s.heldKeys++
		if s.heldKeys > s.heldLimit {
			s.unloadHeld(h)
		}
	}
	return h
}

// askRelease asks the store to release a held key.
func (p *Partition[M]) askRelease(key string, h *heldKey) {
	h.releasing = true
	p.pending.Release = append(p.pending.Release, key)
	p.countOutcome()
}

// releaseAnswered processes the answer to a request to release a key. If messages of the key were parked since, it stays held and is
// due at once.
func (p *Partition[M]) releaseAnswered(key string, done bool) {
	h := p.held[key]
	if h == nil {
		return
	}
	h.releasing = false
	switch {
	case !done: // the key has more parked messages
		p.schedule.Wake.Due = true
	case h.unrecorded > 0 || h.blocks > 0:
		p.pending.Held = append(p.pending.Held, store.HeldKey{Key: key, Reason: store.ParkHeld, Cause: "messages were queued after it"})
		h.blocks++
		p.countOutcome()
	default:
		delete(p.held, key)
		p.schedule.heldKeys--
		for v := range p.schedule.lookups {
			v.held[key] = false
		}
	}
}

// unloadHeld removes a quarter of the held keys from memory, choosing idle ones: they have no messages in memory, and
// everything known about them is recorded.
func (s *Schedule[M]) unloadHeld(keep *heldKey) {
	for _, p := range s.partitions {
		waiting := p.tx.waits()
		for key, h := range p.held {
			if s.heldKeys <= s.cfg.MaxHeld-s.cfg.MaxHeld/4 {
				break
			}
			_, waits := waiting[key]
			if h == keep || waits || h.unrecorded > 0 || h.busy() || p.works(key) {
				continue
			}
			p.partial = true
			delete(p.held, key)
			s.heldKeys--
			for v := range s.lookups {
				v.held[key] = true
			}
		}
	}
	s.unloading()
	s.heldLimit = max(s.cfg.MaxHeld+1, s.heldKeys+s.cfg.MaxHeld/4)
}

// unloading says, once, that more keys are held than memory takes.
func (s *Schedule[M]) unloading() {
	if s.heldLimit == s.cfg.MaxHeld {
		s.cfg.Unloading()
		s.heldLimit = s.cfg.MaxHeld + 1
	}
}

// PrepareDecision stops the work on a key, and reports whether an operator's decision about it can be applied now: no call on
// the key is out, and everything that is known here about the key is recorded.
func (p *Partition[M]) PrepareDecision(key string) (ready bool) {
	h := p.held[key]
	outlived := p.schedule.outlived.Out(p.work(key, 0))
	if h == nil { // nothing of the key is in memory
		return !outlived
	}
	if !h.deciding {
		h.deciding = true
		if q := p.queues[key]; q != nil && !q.running {
			p.unloadQueue(q)
		}
	}
	if p.works(key) || outlived {
		h.decideAfter = 0
		return false
	}
	if h.decideAfter == 0 {
		h.decideAfter = p.outcomes
		p.schedule.Wake.Settle = p.schedule.Wake.Settle || p.unsent > 0
	}
	return p.outcomesRecorded >= h.decideAfter && h.blocks == 0 && h.unrecorded == 0 && !h.releasing
}

// WorksOnParked reports whether a parked message that waits by itself is in memory, or a call of an earlier lease is out for it.
func (p *Partition[M]) WorksOnParked(key string, seq int64) bool {
	_, outdated := p.outdated[seq]
	return outdated || p.schedule.outlived.Out(p.work(key, seq))
}

// Decided resumes the work on a key after a decision was applied.
func (p *Partition[M]) Decided(key string) {
	if h := p.held[key]; h != nil {
		h.deciding, h.decideAfter = false, 0
	}
}

// EndDecisions resumes the work on keys about which no decision is open any more: one was applied, but the answer was lost.
func (p *Partition[M]) EndDecisions(open func(key string) bool) {
	for key, h := range p.held {
		if h.deciding && !open(key) {
			h.deciding, h.decideAfter = false, 0
		}
	}
}

// decides reports whether a decision about a key is waiting to be applied.
func (p *Partition[M]) decides(key string) bool {
	h := p.held[key]
	return h != nil && h.deciding
}

// unloadQueue drops what waits in the queue of a held key: the store already has it among the parked messages of the key, or
// it is parked now.
func (p *Partition[M]) unloadQueue(q *queue[M]) {
	if q.head != nil {
		p.schedule.queueOf(unit[M]{queue: q}).remove(q)
	}
	p.parkQueued(q, nil)
	if !q.running {
		delete(p.queues, q.key)
	}
}
