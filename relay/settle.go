package relay

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/relay/internal/schedule"
	"github.com/postrider/postrider/store"
)

// settleLoop records outcomes: SettleInterval after the first one or when there are SettleBatch of them, and the rest when
// the relay ends.
func (r *Relay) settleLoop(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.lastSettle:
			for r.flush(ctx) && attempt.Sleep(ctx, settleRetryMin) {
			}
			return
		case <-r.settleWake:
		}
		timer.Reset(r.cfg.SettleInterval)
		for waiting := true; waiting && !r.settleFull(); {
			select {
			case <-ctx.Done():
				return
			case <-r.lastSettle:
				waiting = false
			case <-timer.C:
				waiting = false
			case <-r.settleWake:
			}
		}
		r.flush(ctx)
	}
}

func (r *Relay) settleFull() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sched.Unsettled() >= r.cfg.SettleBatch
}

// sent is a settlement that has been sent. It does not change any more: it may have been applied.
type sent struct {
	partition *partition
	content   *schedule.Settlement
	tries     int
	refusals  int // by the store, which did not apply it
	retryAt   time.Time
}

// The bounds of the wait before a settlement is repeated.
const (
	settleRetryMin = 50 * time.Millisecond
	settleRetryMax = time.Second
)

// flush records what is pending, and repeats settlements that failed. It reports whether any are left to send.
func (r *Relay) flush(ctx context.Context) (again bool) {
	batch := r.collect()
	if len(batch) > 0 {
		settlements := make([]store.Settlement, len(batch))
		for i, s := range batch {
			settlements[i] = s.content.Settlement
		}
		bounded, cancel := context.WithTimeout(ctx, r.cfg.LeaseTTL)
		began := time.Now()
		res, err := r.store.Settle(bounded, r.cfg.Name, settlements)
		cancel()
		if applied := r.processAnswer(ctx, batch, res, err); len(applied)+len(res.Lost) > 0 {
			r.observeSettled(applied, len(res.Lost), time.Since(began))
		} else if err != nil && ctx.Err() == nil {
			r.observeFailure(observe.OperationSettle, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.partitions {
		again = again || p.repeat != nil || p.Pending()
	}
	return again
}

// collect returns the settlements to send: those whose time to be repeated has come, and what is pending in partitions with
// no settlement in progress.
func (r *Relay) collect() []*sent {
	r.mu.Lock()
	defer r.wakeAndUnlock()
	var batch []*sent
	now := time.Now()
	for _, p := range r.partitions {
		if s := p.repeat; s != nil && !now.Before(s.retryAt) {
			p.repeat = nil
			batch = append(batch, s)
		} else if s := p.NextSettlement(now); s != nil {
			batch = append(batch, &sent{partition: p, content: s})
		}
	}
	slices.SortFunc(batch, func(a, b *sent) int { return a.partition.Lease.Partition - b.partition.Lease.Partition })
	return batch
}

// observeSettled tells the observer about settlements that were applied, and how many were refused because their lease was lost.
func (r *Relay) observeSettled(applied []*sent, lost int, took time.Duration) {
	if r.observer.Load() == nil {
		return
	}
	s := observe.Settled{Lost: lost, Took: took}
	for _, a := range applied {
		s.Settlements = append(s.Settlements, a.content.Settlement)
	}
	r.observe(func(o *observe.Relay) {
		if o.Settled != nil {
			o.Settled(s)
		}
	})
}

// processAnswer processes the store's answer for each settlement, and returns those that were applied; an error is the answer for
// all.
func (r *Relay) processAnswer(ctx context.Context, batch []*sent, res store.Settled, err error) (applied []*sent) {
	r.mu.Lock()
	defer r.wakeAndUnlock()
	now, answered := time.Now(), false
	for _, s := range batch {
		p := s.partition
		failed := cmp.Or(err, res.Failed[p.Lease.Partition])
		switch lost := slices.Contains(res.Lost, p.Lease.Partition); {
		case failed != nil:
			r.repeatLater(ctx, s, failed, err == nil && !errors.Is(failed, store.ErrPassing))
		case !lost:
			r.dueAfter(p.Confirm(s.content, res.Released, now))
			applied = append(applied, s)
		default:
			r.leaseLost(p)
		}
		answered = answered || failed == nil
	}
	if !answered {
		return nil
	}
	r.logWorking(&r.settleOutage, now, "relay records outcomes again")
	r.wakeAfterSettling()
	return applied
}

// maxRefusals is how often a settlement is refused before the partition's state is read from the database again.
const maxRefusals = 10

// repeatLater schedules the repetition of a settlement, unless its lease has ended. definite says that it was not applied.
func (r *Relay) repeatLater(ctx context.Context, s *sent, err error, definite bool) {
	if s.partition.Gone() {
		return
	}
	if ctx.Err() == nil {
		r.logFailing(&r.settleOutage, time.Now(), "relay cannot record outcomes and keeps trying", err)
	}
	if definite {
		s.refusals++
	}
	if s.tries++; s.refusals >= maxRefusals {
		r.leaseLost(s.partition)
		return
	}
	wait := attempt.Backoff(settleRetryMin, settleRetryMax, s.tries)
	s.retryAt = time.Now().Add(wait)
	s.partition.repeat = s
	time.AfterFunc(wait, func() { signal(r.settleWake) })
}

// leaseLost drops a partition whose lease no longer holds: another process works on it, the database crashed or failed over, or
// something was done under the lease that this process does not know of. Its state in memory is dropped, and read from the
// database when the process leases the partition again. It may be gone already: a store may answer after the relay has let it go.
func (r *Relay) leaseLost(p *partition) {
	if p.Gone() {
		return
	}
	r.cfg.Logger.Warn("lease of a partition was lost; messages may be delivered again", "relay", r.cfg.Name, "partition", p.Lease.Partition)
	r.observeLeases(observe.LeaseLost, 1)
	r.lose(p)
	signal(r.heartbeatWake)
}

// wakeAfterSettling wakes what waits for settlements.
func (r *Relay) wakeAfterSettling() {
	if r.sched.Unsettled() > 0 {
		signal(r.settleWake)
	}
	if r.wantFetch() {
		signal(r.fetchWake)
	}
	r.drained()
	signal(r.handoverWake)
}
