package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/protect"
	"github.com/postrider/postrider/store"
)

// transact runs one transaction for a batch: its handlers, the settlement, the commit. All of it takes effect, or nothing.
func (r *Relay) transact(batch []*item, probe bool) {
	ctx := batch[0].partition.ctx
	tx, err := r.tx.begin(ctx, r.cfg.LeaseTTL)
	if err != nil {
		r.notBegun(batch, err, probe)
		return
	}
	at, done, begun := 0, len(batch), time.Now()
	err = protect.Call(func() error { // one call for all: a goroutine per message costs as much as a round trip
		for i, it := range batch {
			if i > 0 && i >= batch[0].queue.late && time.Since(begun) >= r.cfg.LeaseTTL/3 {
				done = i
				return nil
			}
			at = i
			if err := r.attempt(ctx, tx, it); err != nil {
				return err
			}
		}
		return nil
	}, func(v any, stack string) error { return &PanicError{Value: v, Stack: stack} })
	if err != nil {
		r.rollback(ctx, tx)
		r.undone(batch, at, readError(err))
		return
	}
	s, ours := r.settlementOf(batch[:done])
	if !ours { // the cursor stays where it is, and so must everything else
		r.rollback(ctx, tx)
		r.undone(batch, 0, result{})
		return
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.LeaseTTL)
	defer cancel()
	released, err := tx.commitSettled(bounded, r.cfg.Name, s.settlement)
	r.committed(batch, done, s, released, err)
}

// rollback rolls back a transaction. If that fails, the connection is gone, and the transaction with it.
func (r *Relay) rollback(ctx context.Context, tx transaction) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.LeaseTTL)
	defer cancel()
	if err := tx.rollback(bounded); err != nil && ctx.Err() == nil {
		r.cfg.Logger.Debug("transaction was not rolled back in order", "relay", r.cfg.Name, "error", err)
	}
}

// attempt runs the handler of a message in a transaction.
func (r *Relay) attempt(ctx context.Context, tx transaction, it *item) error {
	switch {
	case it.err != nil:
		return postrider.Dead(postrider.Undecodable, it.err)
	case it.refused != nil:
		return it.refused
	case it.foreign:
		return errForeign
	}
	m := *it.msg // the handler may run again
	m.Attempt = it.attempts + 1
	ctx = tx.within(ctx)
	if limit := r.attemptTimeout(); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("attempt took longer than %s: %w", limit, context.DeadlineExceeded))
		defer cancel()
	}
	return r.handle(ctx, &m)
}

// settlementOf returns what the transaction of a batch commits in addition to its side effects. That of a transaction queue
// includes all pending outcomes of its partition, which must be recorded before the cursor passes them. It reports whether
// the partition is still held.
func (r *Relay) settlementOf(batch []*item) (_ *sent, ours bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := batch[0].partition
	if p.gone {
		return nil, false
	}
	out := &sent{partition: p, settlement: store.Settlement{Partition: p.id, Token: p.token}}
	s := &out.settlement
	if batch[0].queue.isTxQueue() {
		*s, out.count = p.pending, p.count
		p.pending, p.count = store.Settlement{}, 0
		s.Partition, s.Token, s.Number, s.Moved = p.id, p.token, p.number+1, true
		upTo := p.tracker.begin()
		for _, it := range batch {
			if !it.parked {
				upTo = it.ticket + 1
			}
		}
		then := p.tracker.reach(upTo)
		s.Cursor, out.upTo, out.passed = then.cursor, then.begin(), then.passed
		s.Unrouted = p.countUnrouted(then.passed)
	}
	for _, it := range batch {
		if it.parked {
			s.Removed = append(s.Removed, it.seq)
		} else {
			s.Delivered = append(s.Delivered, it.seq)
		}
	}
	if s.Number > 0 {
		s.DeliveredCount += int64(len(batch))
	}
	return out, true
}

// notBegun handles a database that does not begin transactions: everything waits, and one transaction at a time probes.
func (r *Relay) notBegun(batch []*item, err error, probe bool) {
	r.mu.Lock()
	defer r.wakeAndUnlock()
	p := batch[0].partition
	if p.ctx.Err() == nil {
		r.tripped(fmt.Sprintf("begin a transaction: %v", err))
	} else if probe {
		r.circuit.abandoned()
	}
	if r.back(batch) {
		r.requeue(batch[0].queue, batch)
	}
	r.closeBatch(batch)
}

// undone handles a transaction that was rolled back because one of its messages failed.
func (r *Relay) undone(batch []*item, at int, v result) {
	r.mu.Lock()
	defer r.wakeAndUnlock()
	r.recovered()
	failed, results := batch[at], []result{v}
	r.markCut(batch[at:at+1], results)
	if !r.back(batch) {
		r.closeBatch(batch)
		return
	}
	q := failed.queue
	switch {
	case results[0].cut:
		r.requeue(q, batch)
	case at == 0:
		if len(batch) > 1 {
			r.requeue(q, batch[1:])
		}
		if r.failed(failed, &results[0]) && !q.isTxQueue() {
			r.parkQueued(q, nil)
		}
	case at < q.late: // those before it cannot be settled without it
		for _, it := range batch[:q.late] {
			r.parkApart(it)
		}
		if rest := batch[q.late:]; len(rest) > 0 {
			r.requeue(q, rest)
		}
	default:
		r.requeue(q, batch)
		q.limit = at
	}
	r.closeBatch(batch)
}

// committed processes the outcome of a commit of the first done messages of a batch. There was no time for the others.
func (r *Relay) committed(batch []*item, done int, s *sent, released []string, err error) {
	r.mu.Lock()
	defer r.wakeAndUnlock()
	r.recovered()
	p, q := s.partition, batch[0].queue
	if !r.back(batch) {
		r.unsettled -= s.count
		r.closeBatch(batch)
		return
	}
	switch {
	case err == nil:
		if done < len(batch) {
			r.requeue(q, batch[done:])
		}
		r.onCommit(batch[:done], s, released)
	case errors.Is(err, store.ErrLeaseLost):
		r.dropAll(batch)
		r.unsettled -= s.count
		r.taken(p)
	case errors.Is(err, store.ErrNotParked): // an operator's decision takes precedence; the handler's work was rolled back
		r.restore(s, len(batch))
		for _, it := range batch {
			delete(p.busy, it.seq)
			r.ended(it)
		}
	case q.isTxQueue():
		r.uncertain[p.id] = newUncertainCommit(batch[:done], fmt.Errorf("commit: %w", err))
		r.dropAll(batch)
		r.unsettled -= s.count
		r.relinquish(p, err)
	default: // if the commit took effect, what is recorded now finds the message gone
		v := readError(fmt.Errorf("commit: %w", err))
		if r.failed(batch[0], &v) {
			r.parkQueued(q, nil)
		}
	}
	r.closeBatch(batch)
}

// onCommit records a transaction that was committed.
func (r *Relay) onCommit(batch []*item, s *sent, released []string) {
	p := s.partition
	for _, it := range batch {
		if !it.parked {
			p.tracker.settle(it.ticket)
			p.delivered = max(p.delivered, it.ticket+1)
		}
		delete(p.busy, it.seq)
		r.ended(it)
	}
	if !batch[0].queue.isTxQueue() {
		p.pending.DeliveredCount += int64(len(batch)) // its transaction moves no cursor and counts nothing
		r.recorded(p)
		return
	}
	p.tracker.advance()
	p.moved = p.tracker.cursor != s.settlement.Cursor // because of what was settled since
	r.settled(r.stored(s, released))
}

// restore returns to the pending outcomes what a transaction that was not committed had taken from them.
func (r *Relay) restore(s *sent, messages int) {
	p, t := s.partition, s.settlement
	p.uncountUnrouted(t.Unrouted)
	if s.count == 0 {
		return
	}
	n := &p.pending
	n.Parked, n.Dead = append(t.Parked, n.Parked...), append(t.Dead, n.Dead...)
	n.Held, n.Release = append(t.Held, n.Held...), append(t.Release, n.Release...)
	n.FailedCount += t.FailedCount
	n.DeliveredCount += t.DeliveredCount - int64(messages)
	p.count += s.count
}

// relinquish gives up a partition after an uncertain commit, to lease it under a new token: then the commit can no longer
// take effect, and the cursor says whether it did.
func (r *Relay) relinquish(p *partition, err error) {
	if p.gone {
		return
	}
	r.cfg.Logger.Warn("it is not known whether a settlement took effect; the partition is leased and read again",
		"relay", r.cfg.Name, "partition", p.id, "error", err)
	r.lose(p)
	signal(r.heartbeatWake)
}

// back records that a batch is no longer out. It reports whether its partition is still held; if not, the batch is dropped.
func (r *Relay) back(batch []*item) bool {
	p, q := batch[0].partition, batch[0].queue
	delete(r.running, batch[0])
	r.returned(batch)
	p.out -= len(batch)
	if q != nil {
		q.running, q.out = false, 0
	}
	if q.isTxQueue() {
		p.sending, p.taken = false, nil
	}
	if p.gone {
		r.dropAll(batch)
	}
	return !p.gone
}

func (r *Relay) dropAll(batch []*item) {
	for _, it := range batch {
		r.drop(it)
	}
}

// closeBatch makes the queue of a returned batch ready for its next messages, and unloads its partition if that is being
// left.
func (r *Relay) closeBatch(batch []*item) {
	p, q := batch[0].partition, batch[0].queue
	if !p.gone {
		r.closeQueue(p, q)
		r.finishLeaving(p)
	}
	if p.count > 0 {
		signal(r.settleWake) // what waited for the transaction
	}
}

// wakeAndUnlock wakes what waits for calls to return, and unlocks.
func (r *Relay) wakeAndUnlock() {
	r.wakeWaiters()
	r.mu.Unlock()
}
