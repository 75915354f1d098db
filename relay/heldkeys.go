package relay

import (
	"context"

	"github.com/postrider/postrider/relay/internal/schedule"
)

func (r *Relay) beginView() *schedule.View {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sched.BeginView()
}

func (r *Relay) endView(v *schedule.View) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sched.EndView(v)
}

// findHeld looks up the keys of messages that were read, if they may be held and are not in memory.
func (r *Relay) findHeld(ctx context.Context, v *schedule.View, keysOf func(yield func(partition int, key string))) error {
	unknown := make(map[string]struct{})
	r.mu.Lock()
	keysOf(func(partition int, key string) {
		if p := r.partitions[partition]; p != nil && p.MayHold(key) {
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
	found, err := r.store.FindHeld(ctx, r.cfg.Name, keys)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	v.Found(found)
	return nil
}
