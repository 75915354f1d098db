package inbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// fate is what happens to a message that is not processed on arrival: it is parked or dead-lettered.
type fate struct {
	dead          bool
	discarded     bool   // the dead letter is on record only
	reason, cause string // of a dead letter; of a parked message the cause, if it is not an attempt's
	park          store.ParkReason
	after         time.Duration
}

// unhandledWait is how long a message without a handler is first parked.
const unhandledWait = 10 * time.Second

// Limits of the wait before the database is tried again.
const (
	storeRetryMin = 50 * time.Millisecond
	storeRetryMax = 5 * time.Second
)

// process runs transactions for a batch until each message is settled, has to wait, or is lost.
func (c *Consumer[Tx]) process(batch []*item) {
	r := c.startRun(batch)
	ctx := r.ctx
	left, wait := c.skip(batch), time.Duration(0)
	for len(left) > 0 && ctx.Err() == nil {
		now := left[:min(len(left), c.size.limit())]
		began := time.Now()
		res := c.observedTransact(ctx, now)
		switch {
		case res.err == nil:
			if !res.onlyParked {
				c.size.fitted(len(now), time.Since(began), c.cfg.Batch)
			}
			c.settle(now, res.ends)
			left, wait = left[len(now):], 0
			continue
		case res.cut > 0:
			c.size.fits.Store(int64(res.cut))
			continue
		case ctx.Err() != nil, errors.Is(res.err, errLost): // nothing was decided
		case res.failed == nil && errors.Is(res.err, store.ErrUnstorable) && c.unpark(now, left):
			c.storeAnswers()
			wait = 0
		case res.failed == nil && len(now) == 1 && errors.Is(res.err, store.ErrUnstorable):
			c.storeAnswers()
			wait = now[0].refused(res.err)
		case res.failed == nil, res.ofDatabase && c.spares(now[0].msg): // no handler failed, so the database did
			for _, it := range now {
				it.alone = it.alone || len(now) > 1
			}
			if len(now) > 1 && c.store.Conflicted(res.err) {
				c.size.conflicted(c.cfg.Name, c.cfg.Logger)
			}
			wait = c.storeFailed(res.err)
		default:
			c.storeAnswers()
			if wait = c.judge(left[0], res.failed, true); left[0].fate != nil {
				continue // it is parked or dead-lettered in its own transaction
			}
		}
		break
	}
	c.endRun(r)
	if r.interrupted.Load() && r.shared() {
		for _, it := range left {
			it.alone = true
		}
	}
	c.requeue(batch, left, wait)
}

// skip settles messages to be skipped, if that needs no transaction, and returns the others.
func (c *Consumer[Tx]) skip(batch []*item) []*item {
	if c.cfg.Unhandled != SkipUnhandled {
		return batch
	}
	var left, passed []*item
	ends := make(map[*item]end)
	for _, it := range batch {
		if it.fate != nil && !it.ofSlowKey() || c.handlers.Knows(restored(it.msg).Type) {
			left = append(left, it)
			continue
		}
		passed, ends[it] = append(passed, it), skipped
	}
	if len(passed) > 0 {
		c.acknowledge(passed, ends)
	}
	return left
}

// watchAfter is how long a transaction runs before the loss of its messages ends its context; after a loss it is never
// committed. The many faster ones have only a timer, 1 µs, and no goroutine that waits, 1 to 7 µs (protect.BenchmarkWatch).
const watchAfter = 5 * time.Millisecond

// startRun begins the processing of a batch. Its context ends when the consumer must cancel running work, or has lost one of the messages.
func (c *Consumer[Tx]) startRun(batch []*item) *run {
	r := &run{batch: batch}
	r.ctx, r.stop = context.WithCancel(c.calls)
	r.late = time.AfterFunc(watchAfter, func() {
		c.watch(r)
		watched := make(map[<-chan struct{}]bool, 1)
		for _, it := range batch {
			lost := it.delivery.Lost()
			if lost == nil || watched[lost] {
				continue
			}
			watched[lost] = true
			go func() {
				select {
				case <-lost:
					r.stop()
				case <-r.ctx.Done():
				}
			}()
		}
	})
	return r
}

// endRun ends what startRun began, before another batch can be taken from the queues.
func (c *Consumer[Tx]) endRun(r *run) {
	if !r.late.Stop() {
		c.unwatch(r)
	}
	r.stop()
}

// storeFailed records that the database does not accept transactions and returns the wait before the next try.
func (c *Consumer[Tx]) storeFailed(err error) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.storeFails++; c.storeFails == 1 {
		c.cfg.Logger.Warn("consumer's transaction failed and is tried again", "consumer", c.cfg.Name, "error", err)
	}
	return attempt.Backoff(storeRetryMin, storeRetryMax, c.storeFails)
}

func (c *Consumer[Tx]) storeAnswers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.storeFails = 0
}

// judge decides what happens to a message whose attempt failed: a fate, or, if local, another attempt after a wait. It logs the
// failure.
func (c *Consumer[Tx]) judge(it *item, err error, local bool) (wait time.Duration) {
	wait = c.setFate(it, err, local)
	c.logFailure(it, wait)
	return wait
}

func (c *Consumer[Tx]) setFate(it *item, err error, local bool) (wait time.Duration) {
	o := postrider.OutcomeOf(err)
	cause := attempt.CauseText(o.Err)
	switch {
	case o.Kind == postrider.Retried && errors.Is(err, postrider.ErrUnhandled):
		it.fate = &fate{park: store.ParkUnhandled, after: unhandledWait, cause: cause}
		return 0
	case o.Kind == postrider.Snoozed:
		it.fate = &fate{park: store.ParkSnoozed, after: o.After}
		return 0
	case o.Kind == postrider.BrokerUnavailable:
		it.fate = &fate{park: store.ParkSnoozed, after: cmp.Or(o.After, c.cfg.UnavailableWait), cause: cause}
		return 0
	}
	now, n := time.Now(), len(it.failures)+1
	rule, err := c.ruleFor(it, &o, err, n)
	if err != nil {
		o, cause = postrider.OutcomeOf(err), attempt.CauseText(err)
	}
	it.failures = append(it.failures, failure{now, cause})
	if o.Kind == postrider.Discarded {
		it.fate = &fate{dead: true, discarded: true, reason: o.Reason, cause: cause}
		return 0
	}
	c.updateStats(func(s *Stats) { s.Failed++ })
	switch {
	case o.Kind == postrider.DeadLettered:
		it.fate = &fate{dead: true, reason: o.Reason, cause: cause}
		return 0
	case rule.discard:
		it.fate = &fate{dead: true, discarded: true, reason: relay.IgnoredError, cause: cause}
		return 0
	case n >= rule.maxAttempts:
		it.fate = &fate{dead: true, reason: AttemptsExhausted, cause: cause}
		return 0
	}
	if wait = cmp.Or(o.After, rule.wait); wait == 0 {
		wait = attempt.Backoff(c.cfg.BackoffBase, c.cfg.BackoffMax, n)
	}
	if !local || n >= c.cfg.LocalAttempts || now.Add(wait).Sub(it.begun) > c.cfg.LocalFor {
		it.fate = &fate{park: store.ParkRetry, after: wait}
	}
	return wait
}

// rule is what a policy says about a failed attempt.
type rule struct {
	maxAttempts int
	wait        time.Duration // 0: the backoff of the configuration
	discard     bool
}

// ruleFor applies the policy for a message to the error of attempt n. An error says that a function of the policy panicked.
func (c *Consumer[Tx]) ruleFor(it *item, o *postrider.Outcome, err error, n int) (out rule, failed error) {
	out.maxAttempts = c.cfg.MaxAttempts
	p := relay.PolicyFor(c.cfg.Policies, restored(it.msg).Type)
	if p == nil {
		return out, nil
	}
	out.maxAttempts = cmp.Or(p.MaxAttempts, out.maxAttempts)
	if o.Kind != postrider.Retried || p.Discard == nil && p.Wait == nil {
		return out, nil
	}
	failed = safely(func() error {
		out.discard = p.Discard != nil && p.Discard(err)
		if p.Wait != nil {
			out.wait = max(p.Wait(n, err), time.Millisecond)
		}
		return nil
	})
	return out, failed
}

// maxRefusals is how often the database refuses a message before something else is stored.
const maxRefusals = 2

// refused decides what is stored instead of a message that the database refuses, and returns the wait before the next try: what
// was to be parked is dead-lettered, and of a dead letter only what identifies and orders the message is stored.
func (it *item) refused(err error) (wait time.Duration) {
	it.refusals++
	wait = attempt.Backoff(storeRetryMin, storeRetryMax, it.refusals)
	switch {
	case it.refusals < maxRefusals || it.standsIn:
		return wait
	case it.fate == nil || !it.fate.dead:
		it.fate = &fate{dead: true, reason: Unstorable, cause: it.causeAfter(err.Error())}
	default:
		cause := it.causeAfter(fmt.Sprintf("only a part of the message is stored, without payload (%d bytes, SHA-256 %x) and headers: %v",
			len(it.msg.Payload), sha256.Sum256(it.msg.Payload), err))
		it.fate = &fate{dead: true, discarded: it.fate.discarded, reason: it.fate.reason, cause: cause}
		it.msg, it.standsIn = standInFor(it.msg), true
	}
	it.refusals = 0
	return wait
}

// causeAfter is a text, followed by the cause so far.
func (it *item) causeAfter(text string) string {
	cause := ""
	if n := len(it.failures); n > 0 {
		cause = it.failures[n-1].cause
	}
	if it.fate != nil && it.fate.cause != "" {
		cause = it.fate.cause
	}
	if cause == "" {
		return text
	}
	return text + "\n" + cause
}

// settle processes a committed transaction.
func (c *Consumer[Tx]) settle(batch []*item, ends map[*item]end) {
	c.storeAnswers()
	for _, it := range batch {
		c.in.count(ends[it] != duplicate)
	}
	c.acknowledge(batch, ends)
}

// acknowledge tells the broker which messages are done, and drops them.
func (c *Consumer[Tx]) acknowledge(batch []*item, ends map[*item]end) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.calls), settleTimeout)
	defer cancel()
	for _, it := range batch {
		c.logEnd(it, ends[it])
		var err error
		if it.standsIn { // a broker with dead letters of its own keeps there what is not stored here
			err = it.delivery.Reject(ctx, it.fate.reason)
		} else {
			err = it.delivery.Ack(ctx)
		}
		c.mu.Lock()
		c.drop(it)
		delete(c.spared, it.msg.ID)
		c.stats.count(ends[it])
		if err != nil {
			c.stats.Unacknowledged++
		}
		c.mu.Unlock()
		if err != nil {
			c.cfg.Logger.Debug("the broker did not hear that a message is done; it may redeliver it, without effect",
				"consumer", c.cfg.Name, "message", it.msg.ID, "error", err)
		}
	}
}

// settleTimeout limits the settlement of one batch with the broker; unsettled messages are redelivered as duplicates.
const settleTimeout = 10 * time.Second

// end is the result of a message in a committed transaction.
type end int

const (
	applied end = iota
	duplicate
	skipped
	parkedFailed
	parkedQueued // a held key
	deadLettered
	discarded
)

func (s *Stats) count(e end) {
	switch e {
	case applied:
		s.Applied++
	case duplicate:
		s.Duplicates++
	case skipped:
		s.Skipped++
	case parkedFailed:
		s.Parked++
	case parkedQueued:
		s.Parked++
		s.Held++
	case deadLettered:
		s.Dead++
	case discarded:
		s.Discarded++
	}
}
