package inbox

import (
	"context"
	"errors"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/internal/protect"
	signals "github.com/postrider/postrider/internal/signal"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// deliverAll processes messages, in order.
func (t *transaction[Tx]) deliverAll(ctx context.Context, fresh []*item) error {
	each := func() error {
		for t.done < len(fresh) {
			if err := t.next(ctx, fresh[t.done:]); err != nil {
				return err
			}
		}
		return nil
	}
	if t.how != together {
		return each()
	}
	err := safely(each) // once for all: it begins a goroutine, which costs 1 to 3 µs (protect.BenchmarkCall)
	if _, panicked := errors.AsType[*relay.PanicError](err); panicked || errors.Is(err, protect.ErrGoexit) {
		return oneFailed(err)
	}
	return err
}

// next processes a message, or those of a Batch.
func (t *transaction[Tx]) next(ctx context.Context, rest []*item) error {
	h, msgs := t.following(rest)
	if h == nil {
		return t.deliverNext(ctx, rest[0])
	}
	var b relay.Batch
	if err := t.bounded(ctx, func(ctx context.Context) (err error) {
		b, err = h.begin(ctx, t.tx, msgs)
		return err
	}); err != nil {
		return err
	}
	within := context.WithValue(ctx, batchKey{}, b)
	for _, it := range rest[:len(msgs)] {
		if err := t.deliverNext(within, it); err != nil {
			return err
		}
	}
	return t.bounded(ctx, b.End)
}

// bounded calls a function for several messages with the time of an attempt.
func (t *transaction[Tx]) bounded(ctx context.Context, f func(ctx context.Context) error) error {
	bound, end := attempt.Bound(ctx, time.Now(), t.cfg.AttemptTimeout)
	defer end()
	err := f(bound)
	if err != nil && ctx.Err() == nil {
		return oneFailed(err) // the error will recur in the second run, and count then
	}
	return err
}

// deliverNext processes a message, if there is time for it.
func (t *transaction[Tx]) deliverNext(ctx context.Context, it *item) error {
	if t.done > 0 && time.Since(t.begun) >= t.cfg.batchTime() {
		return errNoTime
	}
	err := t.deliver(ctx, it)
	if err == nil {
		t.done++
	}
	return err
}

// following returns the handler of the next messages, and those that follow one another in its Batch; nil for a message without one.
// A message that has a savepoint has a Batch of its own.
func (t *transaction[Tx]) following(rest []*item) (h *batchHandler[Tx], msgs []*postrider.Message) {
	if t.how != together {
		return nil, nil
	}
	for _, it := range rest {
		seen := restored(it.msg)
		of := t.batches[seen.Type]
		if of == nil || h != nil && of != h || it.fate != nil {
			break
		}
		h, msgs = of, append(msgs, seen)
	}
	return h, msgs
}

// deliver processes a message, parks it or dead-letters it. It returns errors that affect the whole transaction.
func (t *transaction[Tx]) deliver(ctx context.Context, it *item) error {
	if waits := it.fate == nil || it.ofSlowKey(); t.held[it.msg.Key] && (waits || it.fate.dead) {
		goesAhead, err := t.goesAhead(ctx, t.tx, it.msg)
		if err != nil {
			return err
		}
		if !goesAhead && waits {
			t.ends[it] = parkedQueued
			t.failed = append(t.failed, store.ParkRequest{Message: it.stamped(), Reason: store.ParkHeld})
			return nil
		}
		it.ahead = goesAhead
	}
	if it.fate == nil {
		if it.begun.IsZero() {
			it.begun = time.Now()
		}
		it.msg.Attempt = len(it.failures) + 1
		t.handled++
		ended, err := t.apply(ctx, it.msg)
		switch {
		case err == nil:
			t.ends[it] = ended
			return nil
		case ctx.Err() != nil:
			return err
		case t.how == alone:
			t.failure = err
			return err
		case t.how == together:
			return oneFailed(err) // the error will recur in the second run, and count then
		case errors.Is(err, store.ErrUndone), t.store.Conflicted(err):
			return err // later statements would run outside any transaction, or keep others waiting
		}
		t.judge(it, err, false)
	}
	t.parkOrDeadLetter(it)
	return nil
}

// apply runs the handler of a message, within a savepoint if it needs one.
func (t *transaction[Tx]) apply(ctx context.Context, m *postrider.Message) (ended end, err error) {
	handle := func(ctx context.Context, tx Tx) (err error) {
		ended, err = t.handle(ctx, tx, m, 0)
		return err
	}
	switch t.how {
	case together:
		err = handle(ctx, t.tx)
	case separate:
		var published signals.After
		t.timer.resume()
		err = t.store.Savepoint(published.Within(ctx), t.tx, func(ctx context.Context, tx Tx) error {
			t.timer.pause()
			defer t.timer.resume()
			return safely(func() error { return handle(ctx, tx) })
		})
		t.timer.pause()
		if err == nil {
			published.Join(ctx)
		}
	default:
		err = safely(func() error { return handle(ctx, t.tx) })
	}
	return ended, err
}

// parkOrDeadLetter parks or dead-letters a message, by its fate. With HoldKey, nothing of a key passes its open dead letter: if the key is
// held already, the message is queued with the parked ones, and dead-lettered at its turn. One that precedes those by its version is
// dead-lettered at once, since they wait for that version.
func (t *transaction[Tx]) parkOrDeadLetter(it *item) {
	f, key := it.fate, it.msg.Key
	req := store.ParkRequest{Message: it.stamped(), Reason: f.park, After: f.after, Attempts: it.attempts(time.Now()), Cause: f.cause}
	hold, isHeld := f.dead && !f.discarded && t.cfg.OnDead == relay.HoldKey, t.held[key]
	switch {
	case hold && isHeld && !it.ahead:
		t.ends[it] = parkedFailed
		req.Message, req.Reason, req.Cause = withDead(req.Message, f), store.ParkFailed, f.reason+": "+f.cause
	case f.dead:
		t.ends[it] = deadLettered
		if f.discarded {
			t.ends[it] = discarded
		}
		req.Dead = &store.DeadRequest{Reason: f.reason, Hold: hold && !isHeld, Discarded: f.discarded}
	default:
		t.ends[it] = parkedFailed
	}
	t.failed = append(t.failed, req)
	t.held[key] = isHeld || req.HoldsKey()
}
