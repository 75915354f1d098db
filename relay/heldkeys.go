package relay

import "context"

// heldView is what one read of the store must know about held keys that are not in memory: what the store says, and what
// changes until the messages that were read are admitted. During that time only this process changes which keys are held in
// its partitions; operators leave a key held for the relay to release.
type heldView struct{ held map[string]bool }

func (r *Relay) beginView() *heldView {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := &heldView{held: make(map[string]bool)}
	r.views[v] = struct{}{}
	return v
}

func (r *Relay) endView(v *heldView) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.views, v)
}

// find looks up the keys of messages that were read, if they may be held and are not in memory.
func (v *heldView) find(ctx context.Context, r *Relay, keysOf func(yield func(partition int, key string))) error {
	if r.finder == nil {
		return nil
	}
	unknown := make(map[string]struct{})
	r.mu.Lock()
	keysOf(func(partition int, key string) {
		if p := r.partitions[partition]; key != "" && p != nil && p.partial && p.held[key] == nil {
			unknown[key] = struct{}{}
		}
	})
	r.mu.Unlock()
	if len(unknown) == 0 {
		return nil
	}
	keys := make([]string, 0, len(unknown))
	for key := range unknown {
		keys = append(keys, key)
	}
	found, err := r.finder.FindHeld(ctx, r.cfg.Name, keys)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range found {
		if _, newer := v.held[key]; !newer {
			v.held[key] = true
		}
	}
	return nil
}

// heldKey returns a held key, loading it into memory if only the store has it; nil if it is not held.
func (r *Relay) heldKey(p *partition, key string, v *heldView) *held {
	h := p.held[key]
	if h == nil && key != "" && v.held[key] {
		h = r.holdKey(p, key)
	}
	return h
}

// holdKey marks a key as held in memory.
func (r *Relay) holdKey(p *partition, key string) *held {
	h := p.held[key]
	if h == nil {
		h = &held{}
		p.held[key] = h
		r.heldKeys++
		if r.finder != nil && r.heldKeys > r.heldLimit {
			r.unloadHeld(h)
		}
	}
	return h
}

// dropHeld records that a key is no longer held.
func (r *Relay) dropHeld(p *partition, key string) {
	delete(p.held, key)
	r.heldKeys--
	for v := range r.views {
		v.held[key] = false
	}
}

// unloadHeld removes a quarter of the held keys from memory, choosing idle ones: they have no messages in memory, and
// everything known about them is recorded.
func (r *Relay) unloadHeld(keep *held) {
	for _, p := range r.partitions {
		var waiting map[string]struct{} // the keys in the transaction queue
		if q := p.queues[txQueueKey]; q != nil {
			waiting = make(map[string]struct{}, q.waiting)
			for it := q.head; it != nil; it = it.next {
				waiting[it.key] = struct{}{}
			}
		}
		for key, h := range p.held {
			if r.heldKeys <= r.cfg.MaxHeldKeys-r.cfg.MaxHeldKeys/4 {
				break
			}
			_, waits := waiting[key]
			if h == keep || waits || h.unrecorded > 0 || h.busy() || p.works(key) {
				continue
			}
			p.partial = true
			delete(p.held, key)
			r.heldKeys--
			for v := range r.views {
				v.held[key] = true
			}
		}
	}
	if r.heldLimit == r.cfg.MaxHeldKeys {
		r.cfg.Logger.Warn("more keys are held than the relay keeps in memory; it looks them up in the database",
			"relay", r.cfg.Name, "max_held_keys", r.cfg.MaxHeldKeys)
	}
	r.heldLimit = max(r.cfg.MaxHeldKeys+1, r.heldKeys+r.cfg.MaxHeldKeys/4)
}
