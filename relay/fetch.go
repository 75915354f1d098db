package relay

import (
	"context"
	"slices"
	"time"
)

// fetchLoop reads fresh messages: at once when woken or when there is more, otherwise after a wait that doubles from
// PollMin to PollMax as long as nothing is found.
func (r *Relay) fetchLoop(ctx context.Context) {
	woken, end := r.store.Subscribe()
	defer end()
	wait, failing := r.cfg.PollMin, false
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		found, again, err := r.fetchRound(ctx)
		switch {
		case err != nil:
			if ctx.Err() == nil && !failing {
				r.cfg.Logger.Warn("relay cannot read the outbox and keeps trying", "relay", r.cfg.Name, "error", err)
			}
			failing, wait, again = true, r.cfg.PollMax, false
		case found:
			wait = r.cfg.PollMin
		default:
			wait = min(2*wait, r.cfg.PollMax)
		}
		if err == nil && failing {
			failing = false
			r.cfg.Logger.Info("relay reads the outbox again", "relay", r.cfg.Name)
		}
		if again {
			if r.life.Err() != nil {
				return
			}
			continue
		}
		timer.Reset(wait)
		select {
		case <-r.life.Done():
			return
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-r.fetchWake:
		case <-woken:
			wait = r.cfg.PollMin
		}
	}
}

// fetchRound reads once, if there is room. It reports whether it found anything and whether to read again at once.
func (r *Relay) fetchRound(ctx context.Context) (found, again bool, err error) {
	r.mu.Lock()
	req, parts := r.fetchRequest()
	r.mu.Unlock()
	if len(parts) == 0 {
		r.endRound()
		return false, false, nil
	}
	batches, err := r.store.Fetch(ctx, r.cfg.Name, req)

	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range parts {
		p.reading = false
	}
	if err != nil {
		return false, false, err
	}
	for _, p := range parts {
		p.more = false
	}
	for i := range batches {
		b := &batches[i]
		p := r.partitions[b.Partition]
		if p == nil || p.leaving || !owns(parts, p) {
			continue
		}
		found = found || len(b.Records) > 0
		p.more = b.More
		again = again || b.More
		r.admit(p, b)
	}
	if found {
		r.changed.Broadcast()
	}
	r.endRoundLocked(found || len(parts) < len(r.partitions))
	return found, again && r.room() >= r.cfg.MaxInFlight/2, nil
}

func owns(parts []*partition, p *partition) bool {
	return slices.Contains(parts, p)
}

// fetchRequest says what to read now; no partition when there is no room, or when the destination is down (unless there is
// nothing to probe it with).
func (r *Relay) fetchRequest() (FetchRequest, []*partition) {
	room, bytes := r.room(), r.cfg.MaxInFlightBytes-r.bytes
	if room < max(r.cfg.MaxInFlight/4, 1) || (bytes < r.cfg.MaxInFlightBytes/4 && r.inFlight > 0) ||
		r.heldKeys >= r.cfg.MaxHeldKeys {
		return FetchRequest{}, nil
	}
	now := time.Now()
	if r.circuit.open() {
		if !r.lacksProbe(now) {
			return FetchRequest{}, nil
		}
		room = 1
	}
	req := FetchRequest{MaxBytes: max(bytes, 1)}
	var parts []*partition
	for _, p := range r.partitions {
		if !p.leaving && now.Before(p.until) {
			parts = append(parts, p)
			p.reading = true
			req.Partitions = append(req.Partitions, FetchPartition{Partition: p.id, After: p.fetched})
		}
	}
	if len(parts) > 0 {
		req.Limit = max(room/len(parts), 1)
	}
	return req, parts
}

// room is how many more messages may be in memory.
func (r *Relay) room() int { return r.cfg.MaxInFlight - r.inFlight - r.unsettled }

// admit takes a batch into the scheduler.
func (r *Relay) admit(p *partition, b *Batch) {
	if len(b.Records) == 0 && b.Next == p.fetched {
		return
	}
	p.fetched = b.Next
	ticket := p.tracker.add(b)
	if len(b.Records) == 0 {
		return
	}
	items := make([]item, len(b.Records))
	for i := range b.Records {
		rec := &b.Records[i]
		it := &items[i]
		*it = item{msg: rec.Message, partition: p, ticket: ticket + uint64(i), size: rec.Message.Size(), err: rec.Err}
		r.hold(it)
		switch key := rec.Message.Key; {
		case !r.cfg.takes(rec.Message.Topic) && rec.Err == nil:
			r.drop(it)
			p.tracker.settle(it.ticket)
		case rec.Delay > 0:
			r.park(it, Parked{Reason: ParkDelayed, After: rec.Delay})
			r.drop(it)
		case key != "" && p.held[key] != nil:
			r.park(it, Parked{Reason: ParkHeld, Waits: true})
			r.drop(it)
		default:
			r.enqueue(it)
		}
	}
}

// hold and drop account for what is in memory.
func (r *Relay) hold(it *item) { r.inFlight++; r.bytes += it.size }

func (r *Relay) drop(it *item) {
	r.inFlight--
	r.bytes -= it.size
	it.msg = nil
}

// enqueue puts an item where it waits for its turn.
func (r *Relay) enqueue(it *item) {
	if it.msg.Key == "" {
		r.sched.ready(unit{item: it})
		return
	}
	l := it.partition.lanes[it.msg.Key]
	if l == nil {
		l = &lane{partition: it.partition, key: it.msg.Key}
		it.partition.lanes[l.key] = l
	}
	it.lane = l
	idle := l.head == nil && !l.running && l.deaths == 0
	l.push(it)
	if idle {
		r.sched.ready(unit{lane: l})
	}
}

// endRound ends a round in which there was nothing to read from.
func (r *Relay) endRound() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endRoundLocked(len(r.partitions) > 0)
}

// endRoundLocked tells those who drain how things stand. There may be more when something was found, or when not every
// partition was looked at.
func (r *Relay) endRoundLocked(more bool) {
	r.rounds++
	if !more && r.leased && r.idle() {
		r.emptyRound = r.rounds
	}
	r.tell()
}

// tell wakes those who drain.
func (r *Relay) tell() {
	close(r.round)
	r.round = make(chan struct{})
}

// idle says that everything read so far is settled and recorded.
func (r *Relay) idle() bool {
	if r.unsettled > 0 || r.circuit.open() && r.inFlight > 0 {
		return false
	}
	for _, p := range r.partitions {
		if p.tracker.open() > 0 {
			return false
		}
	}
	return true
}

// dueLoop brings parked messages back when their time has come.
func (r *Relay) dueLoop(ctx context.Context) {
	woken, end := r.store.Subscribe()
	defer end()
	failing := false
	for {
		again, err := r.dueRound(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			r.cfg.Logger.Warn("relay cannot read parked messages and keeps trying", "relay", r.cfg.Name, "error", err)
		}
		failing = err != nil
		wait := r.cfg.PollMax
		r.mu.Lock()
		if !r.nextDue.IsZero() && !r.circuit.open() { // recovered wakes this loop
			wait = min(wait, max(time.Until(r.nextDue), time.Millisecond))
		}
		r.mu.Unlock()
		if again {
			wait = time.Millisecond
		} else if err != nil {
			wait = r.cfg.PollMax
		}
		if !r.dueWait(ctx, woken, wait) {
			return
		}
	}
}

// dueWait waits for the next look at parked messages and reports whether to go on. Commits wake it too, since an
// operator's decision is one, but not more often than every quarter of a second.
func (r *Relay) dueWait(ctx context.Context, woken <-chan struct{}, wait time.Duration) bool {
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
		case <-woken:
			select {
			case <-earliest.C:
				return true
			default:
				timer.Reset(min(wait, 250*time.Millisecond))
			}
		}
	}
}

// The bounds of one look at parked messages.
const (
	dueRuns      = 32
	dueRunLength = 64
)

// dueRound reads parked messages once and reports whether more are due right now.
func (r *Relay) dueRound(ctx context.Context) (again bool, err error) {
	req, parts := r.dueRequest()
	if len(req.Partitions) == 0 {
		return false, nil
	}
	res, err := r.store.Due(ctx, r.cfg.Name, req)
	if err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nextDue = time.Time{}
	if res.Next >= 0 {
		r.nextDue = time.Now().Add(res.Next)
	}
	for i := range res.Runs {
		if p := r.partitions[res.Runs[i].Partition]; p != nil && !p.leaving && owns(parts, p) {
			r.admitRun(p, &res.Runs[i])
		}
	}
	if len(res.Runs) > 0 {
		r.changed.Broadcast()
	}
	return res.More && len(res.Runs) > 0, nil
}

func (r *Relay) dueRequest() (DueRequest, []*partition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	req := DueRequest{Runs: dueRuns, RunLength: dueRunLength, MaxBytes: max(r.cfg.MaxInFlightBytes/8, 1)}
	now := time.Now()
	if r.sched.parked.len() >= dueRuns || r.circuit.open() && !r.lacksProbe(now) {
		return req, nil
	}
	if r.circuit.open() {
		req.Runs, req.RunLength = 1, 1
	}
	var parts []*partition
	for _, p := range r.partitions {
		if p.leaving || !now.Before(p.until) {
			continue
		}
		parts = append(parts, p)
		req.Partitions = append(req.Partitions, p.id)
		for key, h := range p.held {
			if p.lanes[key] != nil || h.heads > 0 || h.releasing {
				req.BusyKeys = append(req.BusyKeys, key)
			}
		}
		for seq := range p.busy {
			req.BusySequences = append(req.BusySequences, seq)
		}
	}
	return req, parts
}

// admitRun takes a piece of parked work into the scheduler.
func (r *Relay) admitRun(p *partition, in *Run) {
	if in.Key == "" {
		for i := range in.Records {
			r.admitDue(p, &in.Records[i])
		}
		return
	}
	h := p.held[in.Key]
	if h == nil {
		h = r.holdKey(p, in.Key)
	}
	if p.lanes[in.Key] != nil || h.heads > 0 || h.releasing {
		return // what was read is older than what is known here
	}
	if len(in.Records) == 0 {
		r.release(p, in.Key, h)
		return
	}
	piece := &run{key: in.Key, left: len(in.Records)}
	for i := range in.Records {
		r.enqueue(r.parkedItem(p, &in.Records[i], piece))
	}
}

// admitDue takes one message that waited for itself: without a key, or delayed.
func (r *Relay) admitDue(p *partition, rec *Record) {
	if _, busy := p.busy[rec.Message.Sequence]; busy {
		return
	}
	it := r.parkedItem(p, rec, &run{left: 1})
	p.busy[rec.Message.Sequence] = struct{}{}
	if h := p.held[rec.Message.Key]; h != nil { // the key is held: take the place in its queue
		r.park(it, Parked{Reason: ParkHeld, Waits: true, Attempts: rec.Attempts})
		r.drop(it)
		return
	}
	r.enqueue(it)
}

func (r *Relay) parkedItem(p *partition, rec *Record, piece *run) *item {
	it := &item{
		msg: rec.Message, partition: p, run: piece, size: rec.Message.Size(), attempts: rec.Attempts,
		parked: true, parkedFor: rec.ParkedFor, reason: rec.Reason, err: rec.Err,
	}
	r.hold(it)
	return it
}

// holdKey marks a key as held in memory.
func (r *Relay) holdKey(p *partition, key string) *held {
	h := p.held[key]
	if h == nil {
		h = &held{}
		p.held[key] = h
		r.heldKeys++
	}
	return h
}

// release asks for a held key to be let go.
func (r *Relay) release(p *partition, key string, h *held) {
	h.releasing = true
	p.pending.Release = append(p.pending.Release, key)
	r.recorded(p)
}

// wantFetch says that there is room again for messages that wait in the store.
func (r *Relay) wantFetch() bool {
	if r.inFlight > r.cfg.MaxInFlight/2 {
		return false
	}
	for _, p := range r.partitions {
		if p.more && !p.reading {
			return true
		}
	}
	return false
}

// recorded counts one outcome and wakes the settler.
func (r *Relay) recorded(p *partition) {
	p.count++
	r.unsettled++
	if r.unsettled == 1 || r.unsettled >= r.cfg.SettleBatch {
		signal(r.settleWake)
	}
}
