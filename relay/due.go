package relay

import (
	"context"
	"slices"
	"time"

	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/relay/internal/schedule"
	"github.com/postrider/postrider/store"
)

// dueLoop reads parked messages when they are due.
func (r *Relay) dueLoop(ctx context.Context) {
	woken, end := r.store.Subscribe(nil)
	defer end()
	var failing outage
	for {
		began := time.Now()
		again, err := r.dueRound(ctx)
		switch {
		case err == nil:
			r.logWorking(&failing, time.Now(), "relay reads parked messages again")
		case ctx.Err() == nil:
			r.observeFailure(observe.OperationDue, err)
			r.logFailing(&failing, time.Now(), "relay cannot read parked messages and keeps trying", err)
		}
		wait := r.untilDue(began)
		if again {
			wait = time.Millisecond
		} else if err != nil {
			wait = r.cfg.PollMax
		}
		if !r.dueWait(ctx, woken, began, wait) {
			return
		}
	}
}

// untilDue is how long to wait for the next poll if the last one began at the given time: at least PollMin, so that the
// messages of a storm of retries are read together and leave the database to fresh messages.
func (r *Relay) untilDue(began time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nextDue.IsZero() || r.circuit.open() || r.closed() || r.dueFull { // the loop is woken when these states end
		return r.cfg.PollMax
	}
	return min(r.cfg.PollMax, max(time.Until(r.nextDue), time.Until(began.Add(r.cfg.PollMin)), time.Millisecond))
}

// dueAt records that a parked message is due at a given time.
func (r *Relay) dueAt(at time.Time) {
	if r.nextDue.IsZero() || at.Before(r.nextDue) {
		r.nextDue = at
		signal(r.dueSooner)
	}
}

// dueAfter is dueAt for a time from now, unless that is negative.
func (r *Relay) dueAfter(d time.Duration) {
	if d >= 0 {
		r.dueAt(time.Now().Add(d))
	}
}

// dueWait waits for the next poll for parked messages and reports whether to continue. Commits wake it too, since an
// operator's decision is one, but at most every 250 ms.
func (r *Relay) dueWait(ctx context.Context, woken <-chan struct{}, began time.Time, wait time.Duration) bool {
	end := time.Now().Add(wait)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	earliest := time.NewTimer(min(wait, 250*time.Millisecond))
	defer earliest.Stop()
	for {
		select {
		case <-r.life.Done():
			return false
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-r.dueWake:
			return true
		case <-r.dueSooner:
			if at := time.Now().Add(r.untilDue(began)); at.Before(end) {
				end = at
				timer.Reset(time.Until(end))
			}
		case <-woken:
			select {
			case <-earliest.C:
				return true
			default:
				timer.Reset(min(time.Until(end), 250*time.Millisecond))
			}
		}
	}
}

// The bounds of one poll for parked messages.
const (
	dueRuns      = 32
	dueRunLength = 64
)

// fullDueEvery is how often parked messages are read from the first on. What becomes visible before the place where the other reads
// begin (see store.DueResult.From) is delivered that much later, at most, and up to PollMax for the next read.
const fullDueEvery = 2 * time.Second

// dueFrom is where the next read of parked messages begins.
type dueFrom struct {
	at     time.Time // of the last result, on the database's clock
	leases map[store.LeaseRef]bool
	full   time.Time // when the last read from the first on began
}

// request returns the From of a request.
func (d *dueFrom) request(leases []store.LeaseRef, now time.Time) time.Time {
	other := func(l store.LeaseRef) bool { return !d.leases[l] }
	if now.Sub(d.full) >= fullDueEvery || slices.ContainsFunc(leases, other) {
		return time.Time{}
	}
	return d.at
}

// answered records the result of a read.
func (d *dueFrom) answered(req *store.DueRequest, res *store.DueResult, began time.Time) {
	if req.From.IsZero() {
		d.full = began
	}
	d.at, d.leases = res.From, make(map[store.LeaseRef]bool, len(req.Leases))
	for _, l := range req.Leases {
		d.leases[l] = true
	}
}

// dueRound reads parked messages once and reports whether more are due right now.
func (r *Relay) dueRound(ctx context.Context) (again bool, err error) {
	req, parts := r.dueRequest()
	if len(req.Leases) == 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.dueFull && !r.circuit.open() { // no partitions: what was due is another process's
			r.nextDue = time.Time{}
		}
		return false, nil
	}
	bounded, cancel := context.WithTimeout(ctx, r.cfg.LeaseTTL)
	defer cancel()
	lookup := r.beginLookup()
	defer r.endLookup(lookup)
	began := time.Now()
	res, err := r.store.Due(bounded, r.cfg.Name, req)
	r.observeDue(began, res.Runs, err)
	if err == nil {
		r.dueFrom.answered(&req, &res, began)
		var lost []int
		lost, err = r.findHeld(bounded, lookup, req.Leases, func(yield func(int, string)) {
			for i := range res.Runs {
				if run := &res.Runs[i]; run.Key == "" {
					for j := range run.Entries {
						yield(run.Partition, run.Entries[j].Message.Key)
					}
				}
			}
		})
		res.Lost = append(res.Lost, lost...)
	}
	if err != nil {
		return false, err
	}
	r.admitDueResult(&res, parts, lookup)
	return res.More && len(res.Runs) > 0, r.decideAll(ctx, res.Decisions, parts)
}

// observeDue tells the observer about a read of parked messages.
func (r *Relay) observeDue(began time.Time, runs []store.ParkedRun, err error) {
	if r.observer.Load() == nil {
		return
	}
	f := observe.Fetched{Parked: true, Took: time.Since(began), Err: err}
	for i := range runs {
		f.Messages += len(runs[i].Entries)
	}
	r.observe(func(o *observe.Relay) {
		if o.Fetched != nil {
			o.Fetched(f)
		}
	})
}

// admitDueResult processes what was found.
func (r *Relay) admitDueResult(res *store.DueResult, parts []*partition, lookup *schedule.HeldLookup) {
	r.mu.Lock()
	defer r.wakeAndUnlock()
	for _, id := range res.Lost {
		if p := r.partitions[id]; p != nil && slices.Contains(parts, p) {
			r.leaseLost(p)
		}
	}
	r.endDecisions(res.Decisions, parts)
	// What was settled since the poll began is not in it.
	if at := time.Now().Add(res.Next); res.Next >= 0 && (r.nextDue.IsZero() || at.Before(r.nextDue)) {
		r.nextDue = at
	}
	if len(res.Runs) > 0 {
		r.circuit.sinceDue = 0
	}
	now := time.Now()
	for i := range res.Runs {
		p := r.partitions[res.Runs[i].Partition]
		if p != nil && !p.Leaving() && slices.Contains(parts, p) && !awaitsDecision(&res.Runs[i], res.Decisions) {
			r.admitRun(p, &res.Runs[i], lookup, now)
		}
	}
}

func (r *Relay) dueRequest() (store.DueRequest, []*partition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	parked := &r.sched.Parked
	now, room := time.Now(), parked.MaxMessages-parked.Messages
	r.dueFull = room <= 0 || parked.Bytes >= parked.MaxBytes
	switch {
	case r.dueFull || r.closed() || r.circuit.open() && !r.lacksProbe(r.circuit.sinceDue, now):
		room = 0 // operators' decisions only
	case r.circuit.open():
		room = 1
	}
	req := store.DueRequest{Runs: min(dueRuns, room), MaxBytes: max(parked.MaxBytes-parked.Bytes, 0)}
	req.RunLength = min(dueRunLength, max(room/max(req.Runs, 1), 1))
	var parts []*partition
	for _, p := range r.partitions {
		if p.Leaving() || !now.Before(p.Until) {
			continue
		}
		parts = append(parts, p)
		req.Leases = append(req.Leases, p.Lease)
		req.BusyKeys, req.BusySequences = p.Busy(req.BusyKeys, req.BusySequences)
	}
	if len(parts) > 0 {
		r.nextDue = time.Time{} // the poll will say
		req.From = r.dueFrom.request(req.Leases, now)
	}
	return req, parts
}

// admitRun adds a unit of parked work to the schedule.
func (r *Relay) admitRun(p *partition, in *store.ParkedRun, lookup *schedule.HeldLookup, now time.Time) {
	items := make([]item, len(in.Entries))
	for i := range in.Entries {
		items[i] = r.newItem(p, &in.Entries[i])
		if in.Key == "" {
			p.AdmitDue(&items[i], lookup, now)
		}
	}
	if in.Key != "" {
		p.AdmitRun(in.Key, items, now)
	}
}
