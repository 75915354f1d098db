package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/relay"
)

// forgetOwnersAfter is how long an owner that is gone is still shown.
const forgetOwnersAfter = 24 * time.Hour

// cursorState is a relay's progress and lease in one partition.
type cursorState struct {
	cursor  relay.Cursor
	owner   string
	epoch   int64
	until   time.Time // the lease's end
	settled time.Time // the last settlement, or when the relay began here
	// delivered and failed count messages and attempts.
	delivered, failed int64
}

func (c *cursorState) holder(at time.Time) string {
	if c.owner == "" || !c.until.After(at) {
		return ""
	}
	return c.owner
}

func (c *cursorState) release() { c.owner, c.until = "", time.Time{} }

// ownerState is one process of a relay.
type ownerState struct {
	relay.Owner
	started, seen, aliveUntil time.Time
}

// Heartbeat implements relay.LeaseStore.
func (s *Store) Heartbeat(ctx context.Context, name string, owner relay.Owner, ttl time.Duration) (relay.View, error) {
	return do(ctx, s, "Heartbeat", func(db *database) (relay.View, error) {
		if err := s.current(db); err != nil {
			return relay.View{}, err
		}
		r, at := db.relay(name), now()
		o := r.owners[owner.ID]
		if o == nil {
			o = &ownerState{started: at}
			r.owners[owner.ID] = o
		}
		o.Owner, o.seen, o.aliveUntil = owner, at, at.Add(ttl)
		for _, c := range r.cursors {
			if c != nil && c.owner == owner.ID {
				c.until = at.Add(ttl)
			}
		}
		for id, o := range r.owners {
			if at.Sub(o.aliveUntil) >= forgetOwnersAfter {
				delete(r.owners, id)
			}
		}
		return r.view(at), nil
	})
}

func (r *relayState) view(at time.Time) relay.View {
	var v relay.View
	for _, o := range r.owners {
		if o.aliveUntil.After(at) {
			v.Alive++
		}
	}
	for p, c := range r.cursors {
		if c != nil && c.epoch > 0 {
			v.Partitions = append(v.Partitions, relay.PartitionView{Partition: p, Owner: c.holder(at), Epoch: c.epoch})
		}
	}
	return v
}

// Acquire implements relay.LeaseStore.
func (s *Store) Acquire(ctx context.Context, name string, owner relay.Owner, partitions []int, ttl time.Duration,
	start relay.Start) ([]relay.Lease, error) {
	return do(ctx, s, "Acquire", func(db *database) ([]relay.Lease, error) {
		if err := s.current(db); err != nil {
			return nil, err
		}
		for _, p := range partitions {
			if p < 0 || p >= len(db.log) {
				return nil, fmt.Errorf("acquire: there is no partition %d, the outbox has %d", p, len(db.log))
			}
		}
		r, at := db.relay(name), now()
		for p := range r.cursors {
			if r.cursors[p] == nil {
				r.cursors[p] = &cursorState{cursor: db.start(start), settled: at}
			}
		}
		var out []relay.Lease
		for _, p := range partitions {
			c := r.cursors[p]
			if c.holder(at) != "" {
				continue
			}
			c.owner, c.until = owner.ID, at.Add(ttl)
			c.epoch++
			out = append(out, relay.Lease{Partition: p, Owner: owner.ID, Epoch: c.epoch, Cursor: c.cursor})
		}
		return out, nil
	})
}

// start is the cursor of a relay that begins.
func (db *database) start(at relay.Start) relay.Cursor {
	if at == relay.FromNow {
		return cursor{position: db.lastSeq, seen: db.snapshot()}.encode()
	}
	return relay.Cursor{}
}

// Release implements relay.LeaseStore.
func (s *Store) Release(ctx context.Context, name string, leases []relay.Lease) error {
	_, err := do(ctx, s, "Release", func(db *database) (struct{}, error) {
		r := db.relay(name)
		for _, l := range leases {
			if c := r.lease(l.Partition, l.Owner, l.Epoch); c != nil {
				c.release()
			}
		}
		return struct{}{}, nil
	})
	return err
}

// lease returns the state of a partition if owner and epoch are those of its lease, otherwise nil.
func (r *relayState) lease(partition int, owner string, epoch int64) *cursorState {
	if partition < 0 || partition >= len(r.cursors) {
		return nil
	}
	c := r.cursors[partition]
	if c == nil || c.owner != owner || c.epoch != epoch {
		return nil
	}
	return c
}

// Leave implements relay.LeaseStore.
func (s *Store) Leave(ctx context.Context, name string, owner relay.Owner) error {
	_, err := do(ctx, s, "Leave", func(db *database) (struct{}, error) {
		r, at := db.relay(name), now()
		for _, c := range r.cursors {
			if c != nil && c.owner == owner.ID {
				c.release()
			}
		}
		if o := r.owners[owner.ID]; o != nil && o.aliveUntil.After(at) {
			o.aliveUntil = at
		}
		return struct{}{}, nil
	})
	return err
}

// ownerStatus lists the owners, oldest first.
func (r *relayState) ownerStatus(at time.Time) []relay.OwnerStatus {
	var out []relay.OwnerStatus
	for _, o := range r.owners {
		out = append(out, relay.OwnerStatus{
			Owner: o.Owner, Alive: o.aliveUntil.After(at), SeenAgo: at.Sub(o.seen), Started: o.started,
		})
	}
	slices.SortFunc(out, func(a, b relay.OwnerStatus) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID))
	})
	return out
}
