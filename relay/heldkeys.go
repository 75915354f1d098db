package relay

import (
	"context"
	"maps"
	"slices"

	"github.com/postrider/postrider/relay/internal/schedule"
	"github.com/postrider/postrider/store"
)

// beginLookup is called before messages are read, endLookup once they are admitted. Without a lookup in between, a key that this process
// holds or releases meanwhile would be taken for what the store said before.
func (r *Relay) beginLookup() *schedule.HeldLookup {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sched.BeginLookup()
}

func (r *Relay) endLookup(v *schedule.HeldLookup) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sched.EndLookup(v)
}

// findHeld looks up the keys of messages that were read under leases, if they may be held and are not in memory. It returns the
// partitions whose lease does not hold: nothing is known of their keys.
func (r *Relay) findHeld(ctx context.Context, v *schedule.HeldLookup, leases []store.LeaseRef, keysOf func(yield func(partition int, key string))) (
	lost []int, err error,
) {
	unknown, of := make(map[string]struct{}), make(map[int]bool)
	r.mu.Lock()
	keysOf(func(partition int, key string) {
		if p := r.partitions[partition]; p != nil && p.MayHold(key) {
			unknown[key], of[partition] = struct{}{}, true
		}
	})
	r.mu.Unlock()
	if len(unknown) == 0 {
		return nil, nil
	}
	keys := slices.Collect(maps.Keys(unknown))
	leases = slices.DeleteFunc(slices.Clone(leases), func(l store.LeaseRef) bool { return !of[l.Partition] })
	found, err := r.store.FindHeld(ctx, r.cfg.Name, leases, keys)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	v.Found(found.Keys)
	return found.Lost, nil
}
