package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/internal/protect"
	signals "github.com/postrider/postrider/internal/signal"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/relay/internal/schedule"
	"github.com/postrider/postrider/store"
)

// transact runs one transaction for a batch: its handlers, the settlement, the commit. All of it takes effect, or nothing.
func (r *Relay) transact(batch []*item, probe bool) {
	p := batch[0].Message.partition
	ctx, observed := r.observeCall(p.ctx, batch)
	defer observed.end()
	var published signals.After
	ctx = published.Within(ctx)
	tx, err := r.tx.begin(ctx, r.cfg.LeaseTTL)
	if err != nil {
		observed.unavailable()
		r.notBegun(p, batch, err, probe)
		return
	}
	r.connected()
	h := &handling{Relay: r, tx: tx, batch: batch, begun: time.Now()}
	// One call for all: it begins a goroutine, which costs 1 to 3 µs (protect.BenchmarkCall).
	err = protect.Call(func() error { return h.all(ctx) }, func(v any, stack string) error { return &PanicError{Value: v, Stack: stack} })
	if err != nil {
		r.rollback(ctx, tx)
		r.undone(batch, h, r.readResult(batch[h.at], err), observed)
		return
	}
	done := h.done
	r.mu.Lock()
	s := r.sched.Commit(batch[:done])
	r.mu.Unlock()
	if s == nil { // the cursor stays where it is, and so must everything else
		r.rollback(ctx, tx)
		r.committed(p, batch, done, nil, nil, store.ErrLeaseLost, observed)
		return
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.LeaseTTL)
	defer cancel()
	committing := time.Now()
	released, err := tx.commitSettled(bounded, r.cfg.Name, s.Settlement)
	switch {
	case err == nil:
		published.Wake()
		observed.delivered(done)
		r.observeSettled([]*sent{{partition: p, content: s}}, 0, time.Since(committing))
	case errors.Is(err, store.ErrLeaseLost):
		r.observeSettled(nil, 1, time.Since(committing))
	}
	r.committed(p, batch, done, s, released, err, observed)
}

// handling runs the handlers of messages in their transaction.
type handling struct {
	*Relay
	tx    transaction
	batch []*item
	begun time.Time
	done  int // messages handled so far
	// at is the message that an error is about, and together how many messages from it on it may be about.
	at, together int
}

// all handles messages until none is left, or no time.
func (h *handling) all(ctx context.Context) error {
	for h.done < len(h.batch) && h.hasTime() {
		if err := h.next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// hasTime says whether there is time for another message. Those that were committed late are handled in any case.
func (h *handling) hasTime() bool {
	return h.done == 0 || h.done < schedule.Late(h.batch) || time.Since(h.begun) < h.cfg.LeaseTTL/3
}

// next handles a message, or those of a Batch.
func (h *handling) next(ctx context.Context) error {
	begin, msgs, end := h.following()
	if begin == nil {
		h.at, h.together = h.done, 1
		return h.attempt(ctx, h.batch[h.done])
	}
	first := h.done
	h.at, h.together = first, end-first
	var b Batch
	err := h.bounded(ctx, func(ctx context.Context) (err error) {
		b, err = begin(h.tx.within(ctx), msgs)
		return err
	})
	if err != nil {
		return err
	}
	ctx = context.WithValue(ctx, batchKey{}, b)
	for h.done < end && h.hasTime() {
		h.at, h.together = h.done, 1
		if err := h.attempt(ctx, h.batch[h.done]); err != nil {
			return err
		}
	}
	h.at, h.together = first, h.done-first
	return h.bounded(ctx, func(ctx context.Context) error { return b.End(h.tx.within(ctx)) })
}

// following returns what begins the Batch of the next messages, those that follow one another in it, and the index after them; nil for a
// message without one. A message that is not due does not separate others.
func (h *handling) following() (begin func(context.Context, []*postrider.Message) (Batch, error), msgs []*postrider.Message, end int) {
	var b *txBatch
	end = h.done
	for i, it := range h.batch[h.done:] {
		of := h.batches[it.Message.Type]
		switch {
		case it.NotDue && b != nil:
			continue
		case of == nil || b != nil && of != b || it.NotDue || it.Message.err != nil || it.Refused != nil || it.Message.foreign:
			return begin, msgs, end
		}
		b, begin, msgs, end = of, of.begin, append(msgs, it.Message.Message), h.done+i+1
	}
	return begin, msgs, end
}

// attempt runs the handler of a message.
func (h *handling) attempt(ctx context.Context, it *item) error {
	switch {
	case it.NotDue: // the transaction parks it
		h.done++
		return nil
	case it.Message.err != nil:
		return notHandled(it.Message.err)
	case it.Refused != nil:
		return it.Refused
	case it.Message.foreign:
		return errForeign
	}
	m := *it.Message.Message // the handler may run again
	m.Attempt = it.Attempts + 1
	err := h.bounded(ctx, func(ctx context.Context) error { return h.handle(h.tx.within(ctx), &m) })
	if err == nil {
		h.done++
	}
	return err
}

// bounded calls f with the time of an attempt.
func (h *handling) bounded(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, end := attempt.Bound(ctx, time.Now(), h.attemptTimeout())
	defer end()
	return f(ctx)
}

// rollback rolls back a transaction. If that fails, the connection is gone, and the transaction with it.
func (r *Relay) rollback(ctx context.Context, tx transaction) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.LeaseTTL)
	defer cancel()
	if err := tx.rollback(bounded); err != nil && ctx.Err() == nil {
		r.cfg.Logger.Debug("transaction was not rolled back in order", "relay", r.cfg.Name, "error", err)
	}
}

// notBegun handles a database that does not begin transactions: everything waits, and one transaction at a time probes.
func (r *Relay) notBegun(p *partition, batch []*item, err error, probe bool) {
	r.mu.Lock()
	defer r.wakeAndUnlock()
	probe = probe && r.circuit.probes(batch[0].Started)
	switch {
	case r.circuit.open() && !probe: // it is late: the database was found to be away meanwhile
	case p.ctx.Err() == nil:
		r.tripped(fmt.Sprintf("begin a transaction: %v", err), 0)
	case probe:
		r.circuit.abandoned()
	}
	r.sched.Undone(batch, 0, nil)
	r.wakeReaders()
}

// connected records that the database begins transactions. Handlers may then take long, or hang, without keeping other partitions waiting.
func (r *Relay) connected() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recovered()
}

// undone handles a transaction that was rolled back because one of its messages failed, or several together.
func (r *Relay) undone(batch []*item, h *handling, v result, observed *observedCall) {
	r.mu.Lock()
	defer r.wakeAndUnlock()
	results := []result{v}
	r.markCut(batch[h.at:h.at+1], results)
	switch {
	case results[0].cut:
		r.sched.Undone(batch, 0, nil)
	case h.together > 1:
		r.cfg.Logger.Debug("messages failed together in a transaction, and are tried again in smaller ones", "relay", r.cfg.Name,
			"message", batch[h.at].Message.ID, "messages", h.together, "error", v.cause)
		r.sched.Isolate(batch, h.at, h.together)
	default:
		r.sched.Undone(batch, h.at, func() schedule.Outcome {
			o := r.failed(batch[h.at], &results[0])
			observed.outcome(h.at, &results[0], o)
			return o
		})
	}
	r.wakeReaders()
}

// committed processes the outcome of a commit of the first done messages of a batch, for the others of which there was no time.
func (r *Relay) committed(
	p *partition, batch []*item, done int, s *schedule.Settlement, released []string, err error, observed *observedCall,
) {
	r.mu.Lock()
	defer r.wakeAndUnlock()
	switch {
	case err == nil:
		r.dueAfter(r.sched.Committed(batch, done, s, released, time.Now()))
		if s.Number > 0 {
			r.wakeAfterSettling()
		}
	case errors.Is(err, store.ErrLeaseLost):
		if !p.Gone() {
			r.leaseLost(p)
		}
		r.sched.Undone(batch, 0, nil)
	case errors.Is(err, store.ErrNotParked):
		r.sched.NotParked(batch, s)
	case r.sched.Uncertain(batch[:done], fmt.Errorf("commit: %w", err)):
		r.relinquish(p, err)
		r.sched.Undone(batch, 0, nil)
	default:
		v := readError(fmt.Errorf("commit: %w", err))
		r.sched.Undone(batch, 0, func() schedule.Outcome {
			o := r.failed(batch[0], &v)
			observed.outcome(0, &v, o)
			return o
		})
	}
	r.wakeReaders()
}

// relinquish drops a partition after an uncertain commit; it is leased again under a new token.
func (r *Relay) relinquish(p *partition, err error) {
	if p.Gone() {
		return
	}
	r.observeLeases(observe.LeaseLost, 1)
	r.cfg.Logger.Warn("it is not known whether a settlement took effect; the partition is leased and read again",
		"relay", r.cfg.Name, "partition", p.Lease.Partition, "error", err)
	r.lose(p)
	signal(r.heartbeatWake)
}
