package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/internal/protect"
	signals "github.com/postrider/postrider/internal/signal"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// handle runs the handler of a message in a transaction, if the version guard permits, and returns the end: applied or
// skipped. parkedFor is how long the message has been parked.
func (c *Consumer[Tx]) handle(ctx context.Context, tx Tx, m *postrider.Message, parkedFor time.Duration) (end, error) {
	seen := restored(m)
	if c.cfg.Unhandled == SkipUnhandled && !c.handlers.Knows(seen.Type) {
		return skipped, nil
	}
	h, seen, err := c.handlers.Find(seen)
	if err != nil {
		return 0, err
	}
	guarded := c.guards(m)
	if guarded {
		ended, err := c.checkVersion(ctx, tx, m, parkedFor)
		if guarded = ended != skipped; err != nil || !guarded && !c.handlesAgain(m) {
			return ended, err
		}
	}
	if err := c.runHandler(ctx, tx, h, seen); err != nil {
		return 0, err
	}
	if guarded {
		if err := c.setVersion(ctx, tx, m); err != nil {
			return 0, err
		}
	}
	return applied, nil
}

// runHandler calls a handler with its context, timeout and interceptors.
func (c *Consumer[Tx]) runHandler(ctx context.Context, tx Tx, h Handler[Tx], m *postrider.Message) error {
	if c.cfg.Propagator != nil {
		ctx = c.cfg.Propagator.Extract(ctx, m.Headers)
	}
	ctx = postrider.ContextWithMessage(ctx, m)
	if p := relay.PolicyFor(c.cfg.Policies, m.Type); p != nil && p.MaxAttempts > 0 {
		ctx = postrider.ContextWithMaxAttempts(ctx, p.MaxAttempts)
	}
	ctx, err := c.messageContext(ctx, m)
	if err != nil {
		return err
	}
	ctx, end := attempt.Bound(ctx, time.Now(), c.cfg.AttemptTimeout)
	defer end()
	next := postrider.Handler(func(ctx context.Context, m *postrider.Message) error { return h(ctx, tx, m) })
	for i := len(c.cfg.Interceptors) - 1; i >= 0; i-- {
		next = c.cfg.Interceptors[i](next)
	}
	return next(ctx, m)
}

var errNoContext = errors.New("ConsumerConfig.Context returned nil")

// messageContext calls Context if there is one. With a nil context, a database driver may panic while it holds a lock.
func (c *Consumer[Tx]) messageContext(ctx context.Context, m *postrider.Message) (context.Context, error) {
	if c.cfg.Context == nil {
		return ctx, nil
	}
	if ctx = c.cfg.Context(ctx, m); ctx == nil {
		return nil, errNoContext
	}
	return ctx, nil
}

// safely calls f, which runs a handler, so that a panic, or the end of its goroutine, becomes an error.
func safely(f func() error) error {
	return protect.Call(f, func(v any, stack string) error { return &relay.PanicError{Value: v, Stack: stack} })
}

// guards says whether the version guard applies to a message.
func (c *Consumer[Tx]) guards(m *postrider.Message) bool {
	return c.cfg.Versions != nil && m.Key != "" && m.AggregateVersion > 0
}

// checkVersion says whether a message is to be applied or skipped now; an error decides any other outcome.
func (c *Consumer[Tx]) checkVersion(ctx context.Context, tx Tx, m *postrider.Message, parkedFor time.Duration) (end, error) {
	last, err := c.version(ctx, tx, m)
	switch {
	case err != nil:
		return 0, err
	case m.AggregateVersion <= last:
		return skipped, nil
	case m.AggregateVersion == last+1, last == 0 && !c.cfg.Versions.FromOne:
		return applied, nil
	}
	gap := fmt.Errorf("%w: version %d of %s came, and %d was applied last", ErrGap, m.AggregateVersion, m.Key, last)
	switch wait := c.cfg.Versions.WaitFor; {
	case wait < 0:
		return 0, gap
	case parkedFor >= wait:
		return 0, postrider.Dead(VersionGap, gap)
	default:
		return 0, postrider.Unavailable(gap) // counts no attempt
	}
}

// goesAhead says whether a message may overtake the parked messages of its key: by its version it precedes them, or has
// been applied.
func (c *Consumer[Tx]) goesAhead(ctx context.Context, tx Tx, m *postrider.Message) (bool, error) {
	if !c.guards(m) || c.handlesAgain(m) { // an applied version that is handled again waits like any other
		return false, nil
	}
	last, err := c.version(ctx, tx, m)
	return m.AggregateVersion <= last+1, err
}

// version returns the version of a message's key that was applied last.
func (c *Consumer[Tx]) version(ctx context.Context, tx Tx, m *postrider.Message) (int64, error) {
	ctx, cancel := c.storeContext(ctx)
	defer cancel()
	last, err := c.store.Version(ctx, tx, c.cfg.Name, m.Key)
	if err != nil {
		return 0, &storeError{fmt.Errorf("read the version of %s: %w", m.Key, err)}
	}
	return last, nil
}

// setVersion notes the version of a message as the one that was applied last.
func (c *Consumer[Tx]) setVersion(ctx context.Context, tx Tx, m *postrider.Message) error {
	ctx, cancel := c.storeContext(ctx)
	defer cancel()
	if err := c.store.SetVersion(ctx, tx, c.cfg.Name, m.Key, m.AggregateVersion); err != nil {
		return &storeError{fmt.Errorf("note the version of %s: %w", m.Key, err)}
	}
	return nil
}

// processParked processes a parked message when it is due. If earlier versions are parked after it because they arrived
// out of order, they are processed first.
func (c *Consumer[Tx]) processParked(ctx context.Context, m *postrider.Message) error {
	err := c.processInOrder(ctx, m)
	if kind := postrider.OutcomeOf(err).Kind; err != nil && ctx.Err() == nil && !errors.Is(err, postrider.ErrUnhandled) &&
		(kind == postrider.Retried || kind == postrider.DeadLettered) {
		c.updateStats(func(s *Stats) { s.Failed++ })
	}
	return err
}

func (c *Consumer[Tx]) processInOrder(ctx context.Context, m *postrider.Message) error {
	for {
		err := c.processOne(ctx, m)
		if !errors.Is(err, ErrGap) {
			return err
		}
		earlier, failed := c.parkedBefore(ctx, m)
		if earlier != nil {
			failed = c.processOne(ctx, earlier)
		}
		switch o := postrider.OutcomeOf(failed); {
		case o.Kind == postrider.Snoozed, o.Kind == postrider.BrokerUnavailable: // the version is not missing
			return postrider.UnavailableFor(o.After, fmt.Errorf("%w; an earlier version is parked, and waits: %v", ErrGap, failed))
		case earlier == nil, failed != nil:
			return err
		}
	}
}

// gapSearch is how many parked messages of a key are searched for a missing version.
const gapSearch = 1_000

// parkedBefore returns the parked message of the same key with the lowest version, if that is below m's.
func (c *Consumer[Tx]) parkedBefore(ctx context.Context, m *postrider.Message) (*postrider.Message, error) {
	ctx, cancel := c.storeContext(ctx)
	defer cancel()
	_, parked, err := held.New(c.store).ShowHeld(ctx, c.cfg.Name, m.Key, gapSearch)
	if errors.Is(err, store.ErrNotHeld) { // an operator has released the key
		return nil, nil
	}
	if err != nil {
		return nil, postrider.Unavailable(fmt.Errorf("look for earlier versions: %w", err))
	}
	var earliest *postrider.Message
	for i := range parked {
		p := parked[i].Message
		p.Attempt = parked[i].Attempts + 1
		if parked[i].Reason != store.ParkFailed && p.AggregateVersion > 0 && p.AggregateVersion < m.AggregateVersion &&
			(earliest == nil || p.AggregateVersion < earliest.AggregateVersion) {
			earliest = p
		}
	}
	return earliest, nil
}

// processOne removes a parked message and processes it in one transaction. It does not check for a duplicate: a parked
// message has not been consumed.
func (c *Consumer[Tx]) processOne(ctx context.Context, m *postrider.Message) error {
	m = withoutOwnHeaders(m)
	timer, within := c.timed(ctx)
	defer timer.end()
	txCtx, err := c.messageContext(within, restored(m))
	if err != nil {
		return err
	}
	tx, err := beginLimited(txCtx, c.store)
	if err != nil {
		return postrider.Unavailable(fmt.Errorf("begin: %w", errors.Join(err, timer.cause())))
	}
	var published signals.After
	ended, err := c.takeAndHandle(published.Within(within), timer, tx, m)
	if err != nil {
		return c.retryFailed(m, timer, tx, err)
	}
	if err := c.commitRetry(within, tx); err != nil {
		return c.afterCommitFailed(ctx, m, c.retryFailed(m, timer, tx, &storeError{fmt.Errorf("commit: %w", err)}))
	}
	published.Wake()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.count(ended)
	delete(c.spared, m.ID)
	return nil
}

// commitRetry commits under the lease with which the relay retries the message: a process that has lost the lease without
// noticing commits nothing.
func (c *Consumer[Tx]) commitRetry(ctx context.Context, tx Tx) error {
	if lease, ok := attempt.LeaseOf(ctx); ok && c.settler != nil {
		return c.commitUnder(ctx, tx, store.LeaseRef{Partition: lease.Partition, Token: lease.Token})
	}
	return c.store.Commit(ctx, tx)
}

// commitUnder commits a transaction under a lease. Errors: store.ErrLeaseLost.
func (c *Consumer[Tx]) commitUnder(ctx context.Context, tx Tx, lease store.LeaseRef) error {
	_, err := c.settler.CommitSettled(ctx, tx, c.cfg.Name, store.Settlement{Partition: lease.Partition, Token: lease.Token})
	return err
}

// errNotThere is the outcome for a message that is no longer parked: another process has processed it, or an operator has
// moved it to the dead letters, and perhaps back in the meantime. Calling it delivered would remove it in that case;
// snoozing it does nothing if it is gone.
var errNotThere = postrider.Snooze(time.Millisecond)

func (c *Consumer[Tx]) takeAndHandle(ctx context.Context, timer *storeTimer, tx Tx, m *postrider.Message) (end, error) {
	taken, err := c.store.Take(ctx, tx, c.cfg.Name, m)
	timer.pause()
	defer timer.resume()
	switch {
	case err != nil:
		return 0, postrider.Unavailable(fmt.Errorf("take the parked message: %w", err))
	case !taken.Found:
		return 0, errNotThere
	}
	var ended end
	err = safely(func() (err error) {
		ended, err = c.handle(ctx, tx, m, taken.ParkedFor)
		return err
	})
	if err == nil {
		err = ctx.Err() // the lease was lost, or the time to stop is over, and the handler did not notice
	}
	return ended, err
}

// afterCommitFailed checks whether the commit took effect after all: then the message is no longer parked.
func (c *Consumer[Tx]) afterCommitFailed(ctx context.Context, m *postrider.Message, failed error) error {
	ctx, cancel := c.storeContext(ctx)
	defer cancel()
	tx, err := beginLimited(ctx, c.store)
	if err != nil {
		return postrider.Unavailable(errors.Join(failed, err))
	}
	defer func() { _ = c.rollback(tx) }() // read only
	taken, err := c.store.Take(ctx, tx, c.cfg.Name, m)
	switch {
	case err != nil:
		return postrider.Unavailable(errors.Join(failed, err))
	case taken.Found:
		return failed
	default:
		return errNotThere
	}
}
