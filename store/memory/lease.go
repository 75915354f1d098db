package memory

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// removeOwnersAfter is how long a process that is gone is still shown.
const removeOwnersAfter = 24 * time.Hour

// cursorState is a relay's progress and lease in one partition.
type cursorState struct {
	cursor store.Cursor
	// number is that of the last applied settlement, content its digest.
	number  int64
	content [32]byte
	// owner, token and incarnation are those of the lease; owner is "" after a release, and incarnation 0 if it was never
	// granted.
	owner, token string
	incarnation  int
	settled      time.Time // the last settlement, or when the relay began here
	// delivered and failed count messages and attempts.
	delivered, failed int64
}

func (c *cursorState) release(incarnation int) {
	c.owner, c.token, c.incarnation = "", "", incarnation
}

// holder returns the owner of a valid lease, "" if there is none.
func (db *database) holder(r *relayState, c *cursorState, at time.Time) string {
	if c.owner == "" || c.incarnation != db.incarnation || !r.alive(c.owner, at) {
		return ""
	}
	return c.owner
}

func (r *relayState) alive(owner string, at time.Time) bool {
	o := r.owners[owner]
	return o != nil && o.aliveUntil.After(at)
}

// ownerState is one process of a relay.
type ownerState struct {
	store.Owner
	started, seen, aliveUntil time.Time
	ttl                       time.Duration
	reached                   string // its destination, as of the last heartbeat
	member                    bool   // it has sent a heartbeat and counts for the shares of the others
	generation                int    // of its filter; 0 for none, and once it has left
}

// Heartbeat implements store.Leases.
func (s *Store) Heartbeat(ctx context.Context, name string, owner store.Owner, ttl time.Duration) (store.View, error) {
	return do(ctx, s, "Heartbeat", func(db *database) (store.View, error) {
		if err := s.current(db); err != nil {
			return store.View{}, err
		}
		r, at := db.relay(name), now()
		text, err := stored.Report(owner)
		if err != nil {
			return store.View{}, err
		}
		o := r.register(owner, at, ttl)
		o.member, o.reached = true, text
		for id, o := range r.owners {
			if at.Sub(o.aliveUntil) >= removeOwnersAfter {
				delete(r.owners, id)
			}
		}
		v := db.view(r, at)
		v.Filter = db.filter(name, at)
		return v, nil
	})
}

// owner records that a process is alive.
func (r *relayState) owner(owner store.Owner, at time.Time, ttl time.Duration) *ownerState {
	o := r.owners[owner.ID]
	if o == nil {
		o = &ownerState{started: at}
		r.owners[owner.ID] = o
	}
	o.Owner, o.seen, o.aliveUntil, o.ttl = owner, at, at.Add(ttl), ttl
	return o
}

func (db *database) view(r *relayState, at time.Time) store.View {
	var v store.View
	for _, o := range r.owners {
		if o.member && o.aliveUntil.After(at) {
			v.Alive++
		}
	}
	for p, c := range r.cursors {
		if c == nil {
			continue
		}
		if holder := db.holder(r, c, at); holder != "" {
			v.Partitions = append(v.Partitions, store.PartitionView{Partition: p, Owner: holder, Token: c.token})
		}
	}
	return v
}

// Acquire implements store.Leases.
func (s *Store) Acquire(ctx context.Context, name string, owner store.Owner, req store.AcquireRequest) ([]store.Lease, error) {
	return do(ctx, s, "Acquire", func(db *database) ([]store.Lease, error) {
		if err := s.current(db); err != nil {
			return nil, err
		}
		for _, c := range req.Claims {
			if c.Partition < 0 || c.Partition >= len(db.log) {
				return nil, fmt.Errorf("acquire: there is no partition %d, the outbox has %d", c.Partition, len(db.log))
			}
		}
		if err := db.begin(name, req.Kind, req.FromNow); err != nil {
			return nil, fmt.Errorf("acquire partitions of relay %s: %w", name, err)
		}
		r, at := db.relay(name), now()
		r.register(owner, at, req.TTL)
		var out []store.Lease
		filter := db.filter(name, at)
		for _, claim := range req.Claims {
			c := r.cursors[claim.Partition]
			if !db.free(r, c, owner.ID, claim, at) {
				continue
			}
			known, err := db.parkedState(r, claim.Partition, c.cursor.Position, req.MaxHeld)
			if err != nil {
				return nil, err
			}
			c.owner, c.token, c.incarnation = owner.ID, claim.Token, db.incarnation
			out = append(out, store.Lease{
				Partition: claim.Partition, Owner: owner.ID, Token: claim.Token, Cursor: c.cursor, Settled: c.number, Parked: known,
				Filter: filter,
			})
		}
		return out, nil
	})
}

// begin registers a name with a kind, unless it is known. It fails if the name has another kind than want, "" for any.
func (db *database) begin(name string, want store.Kind, fromNow bool) error {
	r := db.relay(name)
	if r.kind != "" {
		return r.kind.Check(want)
	}
	r.kind = cmp.Or(want, store.KindRelay)
	c := store.Cursor{}
	if fromNow && r.kind == store.KindRelay {
		c = db.present()
	}
	for p := range r.cursors {
		r.cursors[p] = &cursorState{cursor: c, settled: now(), incarnation: db.incarnation}
	}
	return nil
}

// free reports whether a lease can be granted, as store.Leases specifies.
func (db *database) free(r *relayState, c *cursorState, owner string, claim store.LeaseClaim, at time.Time) bool {
	if c.incarnation == db.incarnation {
		return c.owner == "" || c.owner == owner || !r.alive(c.owner, at)
	}
	if claim.Resume {
		return true
	}
	ttl, others := time.Duration(0), false
	for id, o := range r.owners {
		ttl = max(ttl, o.ttl)
		others = others || id != owner && o.aliveUntil.After(at)
	}
	return !others || !at.Before(db.began.Add(ttl))
}

// present returns the cursor of a relay that begins with what is published from now on.
func (db *database) present() store.Cursor {
	return cursor{position: db.lastSeq, seen: db.snapshot()}.encode()
}

// Release implements store.Leases.
func (s *Store) Release(ctx context.Context, name string, leases []store.LeaseRef) error {
	_, err := do(ctx, s, "Release", func(db *database) (struct{}, error) {
		for _, l := range leases {
			if c := db.lease(name, l); c != nil {
				c.release(db.incarnation)
			}
		}
		return struct{}{}, nil
	})
	return err
}

// lease returns the state of a partition if the lease is valid, otherwise nil. A lease is valid until another process takes it,
// even after it has expired.
func (db *database) lease(name string, l store.LeaseRef) *cursorState {
	r := db.relay(name)
	if l.Partition < 0 || l.Partition >= len(r.cursors) {
		return nil
	}
	c := r.cursors[l.Partition]
	if c == nil || c.owner == "" || c.token != l.Token || c.incarnation != db.incarnation {
		return nil
	}
	return c
}

// Leave implements store.Leases.
func (s *Store) Leave(ctx context.Context, name string, owner store.Owner) error {
	_, err := do(ctx, s, "Leave", func(db *database) (struct{}, error) {
		r, at := db.relay(name), now()
		for _, c := range r.cursors {
			if c != nil && c.owner == owner.ID && c.incarnation == db.incarnation {
				c.release(db.incarnation)
			}
		}
		if o := r.owners[owner.ID]; o != nil {
			o.generation = 0
			if o.aliveUntil.After(at) {
				o.aliveUntil = at
			}
		}
		return struct{}{}, nil
	})
	return err
}

func (o *ownerState) status(at time.Time) store.OwnerStatus {
	return store.OwnerStatus{
		Owner: store.Owner{ID: o.ID, Host: o.Host, Version: o.Version}, Alive: o.aliveUntil.After(at), SeenAgo: at.Sub(o.seen), Started: o.started,
	}
}
