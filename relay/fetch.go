package relay

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/relay/internal/schedule"
	"github.com/postrider/postrider/store"
)

// fetchLoop reads fresh messages: when woken (see pace), when there is more, and otherwise after a wait that doubles from
// PollMin to PollMax while nothing is found.
func (r *Relay) fetchLoop(ctx context.Context) {
	woken, end := r.store.Subscribe(r.wakesFor)
	defer end()
	wait := r.cfg.PollMin
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var arrivals pace
	var failing outage
	for by := observe.WokenByPoll; ; {
		found, again, err := r.fetchRound(ctx, by)
		arrivals.note(by, found, time.Now())
		switch {
		case err != nil:
			if ctx.Err() == nil {
				r.logFailing(&failing, time.Now(), "relay cannot read the outbox and keeps trying", err)
			}
			wait, again = r.cfg.PollMax, false
		case found > 0:
			wait = r.cfg.PollMin
		default:
			wait = min(2*wait, r.cfg.PollMax)
		}
		if err == nil {
			r.logWorking(&failing, time.Now(), "relay reads the outbox again")
		}
		if again {
			if r.life.Err() != nil {
				return
			}
			by = observe.WokenByRoom
			continue
		}
		timer.Reset(wait)
		select {
		case <-r.life.Done():
			return
		case <-ctx.Done():
			return
		case <-timer.C:
			by = observe.WokenByPoll
		case <-r.fetchWake:
			by = observe.WokenByRoom
		case <-woken:
			by = observe.WokenByCommit
			wait = r.cfg.PollMin
			r.gather(ctx, arrivals.gatherFor(r.cfg.PollMin))
		}
	}
}

// gather waits for more messages to arrive, unless something else asks for a fetch.
func (r *Relay) gather(ctx context.Context, d time.Duration) {
	if d == 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.fetchWake:
	case <-r.life.Done():
	case <-ctx.Done():
	}
}

// fetchRound reads once, if there is room. It reports how many messages it found and whether to read again at once.
func (r *Relay) fetchRound(ctx context.Context, by observe.WokenBy) (found int, again bool, err error) {
	r.mu.Lock()
	req, parts := r.fetchRequest()
	r.mu.Unlock()
	if len(parts) == 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.endRound(nil) // for Drain
		return 0, false, nil
	}
	bounded, cancel := context.WithTimeout(ctx, r.cfg.LeaseTTL)
	defer cancel()
	lookup := r.beginLookup()
	defer r.endLookup(lookup)
	began := time.Now()
	batches, err := r.store.Fetch(bounded, r.cfg.Name, req)
	r.observeFetch(ctx, began, by, batches, err)
	if err == nil {
		err = r.findHeldOf(bounded, lookup, req, batches)
	}

	r.mu.Lock()
	defer r.wakeAndUnlock()
	for _, p := range parts {
		p.reading = false
		if p.Leaving() {
			signal(r.handoverWake)
		}
	}
	if err != nil {
		return 0, false, err
	}
	if found, again = r.admitFetched(batches, parts, lookup); found > 0 {
		r.circuit.sinceRead = 0
	}
	r.endRound(parts)
	return found, again && r.freshRoom() >= r.sched.Fresh.WorthReading(), nil
}

// findHeldOf looks up the keys of batches that may be held. A batch whose lease is found not to hold is lost.
func (r *Relay) findHeldOf(ctx context.Context, lookup *schedule.HeldLookup, req store.FetchRequest, batches []store.Batch) error {
	leases := make([]store.LeaseRef, len(req.Partitions))
	for i := range req.Partitions {
		leases[i] = req.Partitions[i].LeaseRef
	}
	lost, err := r.findHeld(ctx, lookup, leases, func(yield func(int, string)) {
		for i := range batches {
			for j := range batches[i].Entries {
				yield(batches[i].Partition, batches[i].Entries[j].Message.Key)
			}
		}
	})
	for i := range batches {
		if slices.Contains(lost, batches[i].Partition) {
			batches[i] = store.Batch{Partition: batches[i].Partition, Lost: true}
		}
	}
	return err
}

// observeFetch tells the observer about a read of the log.
func (r *Relay) observeFetch(ctx context.Context, began time.Time, by observe.WokenBy, batches []store.Batch, err error) {
	if r.observer.Load() == nil {
		return
	}
	if err != nil && ctx.Err() == nil {
		r.observeFailure(observe.OperationFetch, err)
	}
	f := observe.Fetched{WokenBy: by, Took: time.Since(began), Err: err}
	for i := range batches {
		f.Messages += len(batches[i].Entries)
		f.Late += batches[i].Late
	}
	r.observe(func(o *observe.Relay) {
		if o.Fetched != nil {
			o.Fetched(f)
		}
	})
}

// admitFetched adds what was read to the schedule. It reports how many messages that were, and whether there are more.
func (r *Relay) admitFetched(batches []store.Batch, parts []*partition, lookup *schedule.HeldLookup) (found int, more bool) {
	for _, p := range parts {
		p.more = false
	}
	for i := range batches {
		b := &batches[i]
		p := r.partitions[b.Partition]
		if p == nil || !slices.Contains(parts, p) {
			continue
		}
		if b.Lost {
			r.leaseLost(p)
			continue
		}
		if p.Leaving() || r.life.Err() != nil {
			continue // messages of their keys that precede them may have been left to the next owner
		}
		found += len(b.Entries)
		p.more = b.More
		more = more || b.More
		r.admit(p, b, lookup)
	}
	for _, p := range parts {
		if !p.more && !p.Leaving() && r.life.Err() == nil {
			p.ReadToEnd()
		}
	}
	return found, more
}

// fetchRequest says what to read now: no partition if there is no room, if nothing may be started, or if the destination is down
// (unless there is nothing to probe it with).
func (r *Relay) fetchRequest() (store.FetchRequest, []*partition) {
	if r.closed() {
		return store.FetchRequest{}, nil
	}
	fresh, now := &r.sched.Fresh, time.Now()
	room, bytes := r.freshRoom(), fresh.MaxBytes-fresh.Bytes
	switch full := room < fresh.WorthReading() || bytes < fresh.MaxBytes/4 && fresh.Messages > 0; {
	case r.circuit.open():
		if !r.lacksProbe(r.circuit.sinceRead, now) {
			return store.FetchRequest{}, nil
		}
		room = 1 // however full the memory is, e.g. of probes that hang
	case full:
		for _, p := range r.partitions {
			p.more = true // perhaps: it is read when there is room, not only at the next poll
		}
		return store.FetchRequest{}, nil
	}
	req := store.FetchRequest{MaxBytes: max(bytes, 1)}
	var parts []*partition
	for _, p := range r.partitions {
		switch {
		case p.Leaving() || !now.Before(p.Until):
		case !r.mayReadAhead(p):
			p.more = true
		default:
			parts = append(parts, p)
			p.reading = true
			req.Partitions = append(req.Partitions, store.FetchPartition{LeaseRef: p.Lease, After: p.fetched})
		}
	}
	if len(parts) > 0 {
		req.Limit = max(room/len(parts), 1)
	}
	return req, parts
}

// freshRoom is how many more fresh messages may be in memory, including unrecorded outcomes.
func (r *Relay) freshRoom() int {
	return r.sched.Fresh.MaxMessages - r.sched.Fresh.Messages - r.sched.Unsettled()
}

// readAhead is how far a partition is read beyond its first message without an outcome, in messages for each that MaxInFlight
// allows. It bounds what a slow call makes the relay remember, and deliver again after a crash.
const readAhead = 8

func (r *Relay) mayReadAhead(p *partition) bool { return p.Open() < readAhead*r.cfg.MaxInFlight }

// wantFetch reports whether there is room again for messages that wait in the store.
func (r *Relay) wantFetch() bool {
	if r.freshRoom() < r.sched.Fresh.WorthReading() {
		return false
	}
	for _, p := range r.partitions {
		if p.more && !p.reading && !p.Leaving() && r.mayReadAhead(p) {
			return true
		}
	}
	return false
}

// admit adds a batch to the schedule.
func (r *Relay) admit(p *partition, b *store.Batch, lookup *schedule.HeldLookup) {
	if len(b.Entries) == 0 && b.Next == p.fetched {
		return
	}
	ticket := p.Announce(b, p.fetched.Position)
	p.fetched = b.Next
	items := make([]item, len(b.Entries))
	now := time.Now()
	for i := range b.Entries {
		e, it := &b.Entries[i], &items[i]
		*it = r.newItem(p, e)
		topic, erased := it.Message.Topic, it.Message.Type == store.ErasedType
		if erased || !p.takes(topic) && (e.Err == nil || topic != "") {
			if len(topic) > postrider.MaxTopicBytes { // no index takes it
				topic = strings.ToValidUTF8(topic[:postrider.MaxTopicBytes], "")
			}
			p.Skip(it, ticket+uint64(i), topic, erased || store.MatchTopics(p.elsewhere, topic))
			r.skipped++
			continue
		}
		if e.Err == nil {
			it.Delay = e.Delay
		}
		r.taken = true
		p.Admit(it, ticket+uint64(i), lookup, now)
	}
}

// checkEntry sets Err if the row breaks the rules of a message, and returns the message's key. A key that is too long, which no
// index takes, or has a NUL byte is none: all its messages are dead-lettered.
func checkEntry(e *store.Entry) (key string) {
	if e.Err == nil {
		e.Err = stored.Check(e.Message)
	}
	if key = e.Message.Key; len(key) > postrider.MaxKeyBytes || strings.Contains(key, "\x00") {
		return ""
	}
	return key
}
