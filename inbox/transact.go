package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

// result is what came of a transaction for a batch.
type result struct {
	// err is why it was not committed, or may not have been. failed, if not nil, is the part of it that is the fault of the
	// batch's only message: its handler's error, or that of the commit of its effect.
	err, failed error
	ends        map[*item]end
}

// transaction is one under way.
type transaction[Tx any] struct {
	*Consumer[Tx]
	tx     Tx
	ends   map[*item]end
	parked []Parked
	dead   []Dead
	held   map[string]bool // keys that are, or are to be, held
	effect bool            // a handler has run
	failed error           // what it returned, if it had the transaction for itself
}

// transact runs one transaction for a batch: the claim, or the watermark; the effects; what is put aside; the commit. If
// anything of that fails, nothing of it has happened, but for a commit whose answer was lost: then the next claim finds
// the messages claimed, or the watermark behind them.
func (c *Consumer[Tx]) transact(ctx context.Context, batch []*item) (res result) {
	if len(batch) == 1 && c.cfg.Context != nil {
		ctx = c.cfg.Context(ctx, batch[0].msg)
	}
	tx, err := c.store.Begin(ctx)
	if err != nil {
		return result{err: fmt.Errorf("begin: %w", err)}
	}
	defer func() {
		if res.err != nil {
			res.err = errors.Join(res.err, c.rollback(tx))
		}
	}()
	t := &transaction[Tx]{Consumer: c, tx: tx, ends: make(map[*item]end, len(batch)), held: make(map[string]bool)}
	open := t.claim
	if c.cfg.Remember == ByWatermark {
		open = t.passWatermark
	}
	fresh, err := open(ctx, batch)
	if err != nil {
		return result{err: err}
	}
	for _, it := range fresh {
		if err := t.deliver(ctx, it, len(batch) > 1); err != nil {
			return result{err: err, failed: t.failed}
		}
	}
	if err := t.putAway(ctx); err != nil {
		return result{err: err}
	}
	if ctx.Err() != nil { // lost while the handler did not look
		return result{err: context.Cause(ctx)}
	}
	if err := c.store.Commit(ctx, tx); err != nil {
		res = result{err: fmt.Errorf("commit: %w", err)}
		if t.effect {
			res.failed = res.err
		}
		return res
	}
	return result{ends: t.ends}
}

// rollbackTimeout bounds a rollback, which goes on when the consumer stops.
const rollbackTimeout = 10 * time.Second

func (c *Consumer[Tx]) rollback(tx Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.calls), rollbackTimeout)
	defer cancel()
	return c.store.Rollback(ctx, tx)
}

// claim notes the messages as taken and returns those that are new.
func (t *transaction[Tx]) claim(ctx context.Context, batch []*item) ([]*item, error) {
	candidates := make([]Candidate, len(batch))
	for i, it := range batch {
		candidates[i] = Candidate{ID: it.msg.ID, Key: it.msg.Key}
	}
	standings, err := t.store.Claim(ctx, t.tx, t.cfg.Name, candidates)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	var fresh []*item
	for i, it := range batch {
		t.in.count(standings[i].Fresh)
		if !standings[i].Fresh {
			t.ends[it] = duplicate
			continue
		}
		fresh = append(fresh, it)
		if standings[i].Held {
			t.held[it.msg.Key] = true
		}
	}
	return fresh, nil
}

// passWatermark moves the watermark of the source's partition and returns the messages that were behind it.
func (t *transaction[Tx]) passWatermark(ctx context.Context, batch []*item) ([]*item, error) {
	at := batch[0].delivery.Position
	w, err := t.store.Watermark(ctx, t.tx, t.cfg.Name, at)
	if err != nil {
		return nil, fmt.Errorf("read the watermark: %w", err)
	}
	if w.Earlier != "" {
		t.cfg.Logger.Warn("the source's partition is another log than before; it is consumed from where the broker begins",
			"consumer", t.cfg.Name, "partition", at.Partition, "epoch", at.Epoch, "earlier", w.Earlier, "offset", at.Offset)
	}
	var fresh []*item
	var keys []string
	for _, it := range batch {
		offset := it.delivery.Position.Offset
		if w.Known && offset <= w.Offset {
			t.ends[it] = duplicate
			continue
		}
		w.Known, w.Offset = true, offset
		fresh = append(fresh, it)
		if it.msg.Key != "" {
			keys = append(keys, it.msg.Key)
		}
	}
	if len(fresh) == 0 {
		return nil, nil
	}
	at.Offset = w.Offset
	if err := t.store.SetWatermark(ctx, t.tx, t.cfg.Name, at); err != nil {
		return nil, fmt.Errorf("move the watermark: %w", err)
	}
	if len(keys) == 0 {
		return fresh, nil
	}
	held, err := t.store.HeldAmong(ctx, t.tx, t.cfg.Name, keys)
	if err != nil {
		return nil, fmt.Errorf("look for held keys: %w", err)
	}
	for _, key := range held {
		t.held[key] = true
	}
	return fresh, nil
}

// deliver applies the effect of a message, or puts it aside. Shared says that others are in the transaction, so that its
// failure must not touch them; otherwise the failure is returned.
func (t *transaction[Tx]) deliver(ctx context.Context, it *item, shared bool) error {
	if it.fate == nil && t.held[it.msg.Key] {
		goesAhead, err := t.goesAhead(ctx, t.tx, it.msg)
		if err != nil {
			return err
		}
		if !goesAhead {
			t.ends[it] = putAside
			t.parked = append(t.parked, Parked{Message: it.stamped(), Reason: relay.ParkHeld})
			return nil
		}
	}
	if it.fate == nil {
		if it.begun.IsZero() {
			it.begun = time.Now()
		}
		it.msg.Attempt = len(it.failures) + 1
		t.effect = true
		how, err := t.apply(ctx, it.msg, shared)
		switch {
		case err == nil:
			t.ends[it] = how
			return nil
		case ctx.Err() != nil:
			return err
		case !shared:
			t.failed = err
			return err
		}
		t.judge(it, err, false)
	}
	t.setAside(it)
	return nil
}

// apply applies the effect of a message, within a savepoint if others share the transaction.
func (t *transaction[Tx]) apply(ctx context.Context, m *postrider.Message, shared bool) (how end, err error) {
	if !shared {
		return t.handle(ctx, t.tx, m, 0)
	}
	err = t.store.Savepoint(ctx, t.tx, func(ctx context.Context, tx Tx) (err error) {
		how, err = t.handle(ctx, tx, m, 0)
		return err
	})
	return how, err
}

// setAside notes the fate of a message in the transaction.
func (t *transaction[Tx]) setAside(it *item) {
	f, now := it.fate, time.Now()
	if f.dead {
		t.ends[it] = buried
		t.dead = append(t.dead, Dead{Message: it.stamped(), Reason: f.reason, Cause: f.cause, Attempts: it.attempts(now)})
		if t.cfg.OnDead == relay.HoldKey {
			t.held[it.msg.Key] = it.msg.Key != ""
		}
		return
	}
	t.ends[it] = putAside
	t.parked = append(t.parked, Parked{
		Message: it.stamped(), Reason: f.park, After: f.after, Attempts: it.attempts(now), Cause: f.cause,
	})
	t.held[it.msg.Key] = it.msg.Key != ""
}

// putAway writes what is put aside. A dead head that holds its key stands before its followers.
func (t *transaction[Tx]) putAway(ctx context.Context) error {
	if len(t.dead) > 0 {
		if err := t.store.Bury(ctx, t.tx, t.cfg.Name, t.dead, t.cfg.OnDead == relay.HoldKey); err != nil {
			return fmt.Errorf("write dead letters: %w", err)
		}
	}
	if len(t.parked) > 0 {
		if err := t.store.Park(ctx, t.tx, t.cfg.Name, t.parked); err != nil {
			return fmt.Errorf("park: %w", err)
		}
	}
	return nil
}
