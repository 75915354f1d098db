package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/store"
)

// leaseLoop holds this process's fair share of the partitions: it renews the leases, acquires free partitions, and hands over
// surplus ones.
func (r *Relay) leaseLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.handoverWake:
			r.handOver(ctx)
			continue
		case <-r.heartbeatWake:
		case <-timer.C:
		}
		timer.Reset(r.heartbeat(ctx))
	}
}

// heartbeat renews the leases and adjusts them towards the fair share. It returns the wait before the next heartbeat.
func (r *Relay) heartbeat(ctx context.Context) time.Duration {
	normal, soon := r.cfg.LeaseTTL/3, max(r.cfg.LeaseTTL/15, time.Millisecond)
	asked := time.Now()
	bounded, cancel := context.WithTimeout(ctx, normal)
	defer cancel()
	view, err := r.store.Heartbeat(bounded, r.cfg.Name, r.present(), r.cfg.leaseLife())
	if errors.Is(err, store.ErrReplaced) || errors.Is(err, store.ErrRepartitioned) {
		r.abandon(err)
		return normal
	}
	if err == nil {
		err = r.readPause(bounded)
	}
	if err != nil {
		if ctx.Err() == nil {
			r.observeFailure(observe.OperationLease, err)
			r.logFailing(&r.leaseOutage, asked, "relay cannot renew its leases and keeps trying", err)
		}
		return soon
	}
	r.logWorking(&r.leaseOutage, asked, "relay renews its leases again")
	free, surplus, stray := r.renewed(view, asked)
	if len(stray) > 0 { // leases whose grant never arrived here
		r.removeClaims(stray)
		_ = r.store.Release(bounded, r.cfg.Name, stray) // retried with the next heartbeat
	}
	r.startHandover(surplus)
	gained := r.acquire(bounded, free, view.Alive)
	r.handOver(ctx)
	signal(r.settleWake) // for cursors of which only the snapshot has moved

	r.mu.Lock()
	defer r.mu.Unlock()
	r.leased, r.lastHeartbeat = true, asked
	r.short = len(stray) > 0 || len(gained) < len(free) || len(r.partitions) < r.total/max(view.Alive, 1)
	r.drained()
	if r.short {
		return soon
	}
	if view.Alive > 1 {
		return r.cfg.margin() // to notice in time that another process has died
	}
	return normal
}

// present is this process with the states of its destination and its gate.
func (r *Relay) present() store.Owner {
	r.mu.Lock()
	defer r.mu.Unlock()
	owner := r.owner
	owner.Destination, owner.Gate = r.destination(), r.gateState(time.Now())
	return owner
}

// removeClaims removes this process's claims to partitions that it releases: others may lease them from now on.
func (r *Relay) removeClaims(leases []store.LeaseRef) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range leases {
		delete(r.resume, l.Partition)
		delete(r.claims, l.Partition) // a release that arrives late must not end a later lease
	}
}

// abandon drops every lease and ends the relay: the database is not the one that granted them, has another number of partitions, or
// the name is of another kind.
func (r *Relay) abandon(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = fmt.Errorf("relay %s: %w", r.cfg.Name, err)
	for _, p := range slices.Collect(maps.Values(r.partitions)) {
		r.lose(p)
	}
	r.endLife()
}

// renewed processes a view: it extends the leases that are held, drops partitions that are not, and returns which partitions
// to acquire, how many to hand over, and which leases nobody here knows of.
func (r *Relay) renewed(view store.View, asked time.Time) (free []int, surplus int, stray []store.LeaseRef) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ours := make(map[int]bool)
	taken := make(map[int]bool)
	holdings := make(map[string]int)
	for _, pv := range view.Partitions {
		if pv.Owner == "" {
			continue
		}
		taken[pv.Partition] = true
		holdings[pv.Owner]++
		if pv.Owner != r.owner.ID {
			continue
		}
		if p := r.partitions[pv.Partition]; p != nil && p.Lease.Token == pv.Token && time.Now().Before(p.Until) {
			ours[p.Lease.Partition] = true
			r.extend(p, asked)
			p.setFilter(view.Filter, r.cfg.Topics)
		} else {
			stray = append(stray, store.LeaseRef{Partition: pv.Partition, Token: pv.Token})
		}
	}
	for _, p := range slices.Collect(maps.Values(r.partitions)) {
		if !ours[p.Lease.Partition] {
			r.leaseLost(p)
		}
	}
	r.await()
	if r.life.Err() != nil {
		return nil, 0, stray
	}
	want, surplus := share(r.total, view.Alive, holdings, r.owner.ID)
	// Leases of ours that are not known here, because the partition was lost or the grant never arrived, are acquired again or
	// released.
	for n := len(stray) - 1; n >= 0 && surplus == 0; n-- {
		free, stray = append(free, stray[n].Partition), stray[:n]
	}
	surplus = max(surplus-len(stray), 0)
	want += len(free)
	for id := 0; id < r.total && len(free) < want; id++ {
		if !taken[id] {
			free = append(free, id)
		}
	}
	return free, surplus, stray
}

// extend prolongs the local life of a lease that was requested at a given moment: a margin less than the store granted.
func (r *Relay) extend(p *partition, asked time.Time) {
	p.Until = asked.Add(r.cfg.leaseLife() - r.cfg.margin())
	if p.expiry != nil {
		p.expiry.Reset(time.Until(p.Until))
		return
	}
	p.expiry = time.AfterFunc(time.Until(p.Until), func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !p.Gone() && !time.Now().Before(p.Until) {
			r.leaseExpired(p)
		}
	})
}

// leaseExpired drops a partition whose lease was not renewed in time.
func (r *Relay) leaseExpired(p *partition) {
	r.cfg.Logger.Warn("lease of a partition ended without being renewed", "relay", r.cfg.Name, "partition", p.Lease.Partition)
	r.observeLeases(observe.LeaseExpired, 1)
	r.lose(p)
}

// lose drops a partition whose lease has ended, and the messages that wait in it. Calls in progress notice when they return.
//
//	called by      because                                                      observed as
//	leaseLost      another process has it, or the database crashed              LeaseLost
//	relinquish     it is not known whether a commit took effect                 LeaseLost
//	leaseExpired   no heartbeat was answered in time                            LeaseExpired
//	handOver       the process has more than its share; nothing is in progress  LeaseReleased
//	abandon        the database is not the relay's as it is, so the relay ends  nothing
func (r *Relay) lose(p *partition) {
	r.short = r.short || !p.Leaving()
	if !p.Leaving() && time.Now().Before(p.Until) {
		r.resume[p.Lease.Partition] = p.Until
	}
	p.end()
	p.Lose()
	p.expiry.Stop()
	p.repeat = nil
	delete(r.partitions, p.Lease.Partition)
	r.changed.Broadcast()
	r.drained()
}

// acquire leases free partitions and starts work on them. It returns the leases granted.
func (r *Relay) acquire(ctx context.Context, free []int, alive int) []store.Lease {
	if len(free) == 0 {
		return nil
	}
	asked := time.Now()
	leases, err := r.store.Acquire(ctx, r.cfg.Name, r.owner, r.acquireRequest(free, asked))
	switch {
	case errors.Is(err, store.ErrNameOfConsumer):
		r.abandon(store.ErrNameOfConsumer)
		return nil
	case errors.Is(err, store.ErrNameOfRelay):
		r.abandon(store.ErrNameOfRelay)
		return nil
	case err != nil:
		if !errors.Is(ctx.Err(), context.Canceled) { // it took longer than a heartbeat may, or failed
			r.observeFailure(observe.OperationLease, err)
			r.logFailing(&r.acquireOutage, asked, "relay cannot lease partitions and keeps trying", err)
		}
		return nil
	}
	r.logWorking(&r.acquireOutage, asked, "relay leases partitions again")
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range leases {
		delete(r.claims, l.Partition)
		delete(r.resume, l.Partition)
		r.hold(&l, asked)
	}
	r.noteFirst(leases, alive)
	r.observeLeases(observe.LeaseGained, len(leases))
	signal(r.fetchWake)
	signal(r.dueWake)
	return leases
}

// acquireRequest claims partitions, each under a new token, which stays the same until the answer is known.
func (r *Relay) acquireRequest(free []int, now time.Time) store.AcquireRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	req := store.AcquireRequest{Kind: store.KindRelay, TTL: r.cfg.leaseLife(), FromNow: r.cfg.Start == FromNow,
		MaxHeld: max(r.cfg.MaxHeldKeys/max(len(free), 1), 1)}
	for _, id := range free {
		if r.claims[id] == "" {
			r.claims[id] = store.NewToken()
		}
		req.Claims = append(req.Claims, store.LeaseClaim{Partition: id, Token: r.claims[id], Resume: now.Before(r.resume[id])})
	}
	return req
}
