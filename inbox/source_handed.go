package inbox

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/attempt"
)

// The messages of a key stay in order by three rules, even if leases are lost. They hold within a process. Between processes, the claims
// are enough, because a process begins with a message only when everything before it is committed.
//
//   - The relay hands over a message when those of its key that it handed over before have their outcomes. A call continues for a message that
//     the consumer works on, even if the lease is lost, until the consumer has settled the message or put it back.
//   - Either the consumer begins with a message, or the call takes it back; the message's lock decides. The consumer never begins with one that
//     was taken back or lost, and the call never takes back one with which it has begun.
//   - Of several messages of a key, the newest is taken back, or lost, first. So if the consumer finds that one is lost, those after it are.

// handedCall is a call that has handed messages over.
type handedCall struct {
	to     *relaySubscription
	msgs   []*postrider.Message
	handed []*handedOver
	errs   []error
}

// wait waits for the outcomes of all messages, or until only slow ones, and those after them, are left.
func (c *handedCall) wait(ctx context.Context) {
	tick := time.NewTicker(c.to.lookAgain())
	defer tick.Stop()
	open := make([]int, len(c.msgs)) // the messages without an outcome, in order
	for i := range open {
		open[i] = i
	}
	for len(open) > 0 {
		select {
		case c.errs[open[0]] = <-c.handed[open[0]].settled:
			open = open[1:]
			continue
		case <-tick.C:
			if open = c.settledOf(open); !c.onlySlow(open) {
				continue
			}
			c.continued(c.takeBackFollowing(open))
		case <-ctx.Done():
			c.continued(c.cutOff(ctx, c.settledOf(open)))
		case <-c.to.closing:
			for _, i := range c.lose(c.settledOf(open), postrider.Unavailable(errHandedBack)) {
				c.errs[i] = postrider.Unavailable(errHandedBack)
			}
		}
		break
	}
	c.failFollowing()
}

// settledOf takes the outcomes that there are, and returns the messages without one. A settlement before the end of a call counts.
func (c *handedCall) settledOf(open []int) []int {
	return slices.DeleteFunc(open, func(i int) bool {
		select {
		case c.errs[i] = <-c.handed[i].settled:
			return true
		default:
			return false
		}
	})
}

// onlySlow reports whether the first message of each key is slow.
func (c *handedCall) onlySlow(open []int) bool {
	seen := make(map[string]bool)
	for _, i := range open {
		if key := c.msgs[i].Key; key == "" || !seen[key] {
			if !c.handed[i].worksFor(c.to.parkAfter) {
				return false
			}
			seen[key] = true
		}
	}
	return true
}

// takeBackFollowing takes back what follows the first message of each key, and returns what it cannot take back, with those before it.
func (c *handedCall) takeBackFollowing(open []int) (continued []int) {
	first := make(map[string]int)
	for _, i := range slices.Backward(open) {
		first[c.msgs[i].Key] = i
	}
	return c.takeBack(open, errHandedBack, func(i int) bool { return c.msgs[i].Key == "" || i == first[c.msgs[i].Key] })
}

// takeBack takes back messages with which the consumer has not begun, except some, and those before them in their key. It returns the
// others.
func (c *handedCall) takeBack(open []int, outcome error, except func(i int) bool) (continued []int) {
	kept := make(map[string]bool)
	for _, i := range slices.Backward(open) {
		key := c.msgs[i].Key
		if !kept[key] && !except(i) && c.handed[i].takeBack() {
			c.errs[i] = outcome
			continue
		}
		kept[key] = key != ""
		continued = append(continued, i)
	}
	slices.Reverse(continued)
	return continued
}

// cutOff ends a call whose lease is lost, or whose time is over, and returns what continues.
func (c *handedCall) cutOff(ctx context.Context, open []int) (continued []int) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return c.lose(open, ctx.Err())
	}
	return c.takeBack(open, cutOff(ctx), func(int) bool { return false })
}

// lose ends the right to work on messages, and returns those on which the consumer works. The others have an outcome.
func (c *handedCall) lose(open []int, outcome error) (continued []int) {
	for _, i := range slices.Backward(open) {
		if c.handed[i].lose() {
			continued = append(continued, i)
		} else {
			c.errs[i] = outcome
		}
	}
	slices.Reverse(continued)
	return continued
}

// continued lets the call continue for some messages.
func (c *handedCall) continued(open []int) {
	keys := make(map[string]*handedKey)
	for _, i := range open {
		key := c.msgs[i].Key
		k := keys[key]
		if k == nil || key == "" {
			k = &handedKey{closing: c.to.closing}
			keys[key] = k
		}
		s := c.handed[i]
		k.handed = append(k.handed, s)
		c.errs[i] = &attempt.UnfinishedError{Wait: func(ctx context.Context) error { return k.wait(ctx, s) }}
	}
}

// failFollowing gives the messages after one that failed, or continues, their outcome, unless they continue too. Messages that were already
// processed are redelivered as duplicates.
func (c *handedCall) failFollowing() {
	failed := make(map[string]*postrider.Message) // the first of each key
	for i, m := range c.msgs {
		_, unfinished := errors.AsType[*attempt.UnfinishedError](c.errs[i])
		switch first := failed[m.Key]; {
		case first != nil && !unfinished:
			c.errs[i] = postrider.PredecessorFailed(first, errHandedBack)
		case first == nil && c.errs[i] != nil && m.Key != "":
			failed[m.Key] = m
		}
	}
}

// handedKey are the messages of one key, or one without a key, for which a call continues.
type handedKey struct {
	handed  []*handedOver
	closing <-chan struct{}
}

// wait returns the outcome of one of the messages. When ctx ends, it loses all of them, and waits until the consumer has put this one back.
func (k *handedKey) wait(ctx context.Context, s *handedOver) error {
	select {
	case err := <-s.settled:
		return outcomeOf(ctx, err)
	case <-ctx.Done():
	case <-k.closing:
	}
	for _, each := range slices.Backward(k.handed) {
		each.lose()
	}
	select {
	case err := <-s.settled:
		return outcomeOf(ctx, err)
	case <-k.closing:
		return postrider.Unavailable(errHandedBack)
	}
}

// againAfter is when a message is handed over again that the consumer has put back.
const againAfter = time.Second

// outcomeOf returns the outcome of a message for which a call continued. That the consumer has put one back says nothing about the others.
func outcomeOf(ctx context.Context, err error) error {
	switch {
	case !errors.Is(err, errPutBack):
		return err
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	default:
		return postrider.Snooze(againAfter)
	}
}

// handedOver settles a message with its relay.
type handedOver struct {
	settled chan error    // of capacity 1
	lost    chan struct{} // closed when this process may no longer work on the message

	mu     sync.Mutex
	begun  time.Time // when the consumer has begun to work on it, zero if it does not
	isLost bool
	ended  bool // it has an outcome
}

// begin records that the consumer begins to work on the message, unless it may not.
func (s *handedOver) begin(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isLost {
		s.begun = now
	}
	return !s.isLost
}

// putBack records that the consumer does not work on the message for now; if it is lost, never again.
func (s *handedOver) putBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = time.Time{}
	if s.isLost {
		s.end(errPutBack)
	}
}

// worksFor reports whether the consumer has worked on the message for a time. Waiting for a gate, a worker or the next attempt is no work.
func (s *handedOver) worksFor(d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.begun.IsZero() && time.Since(s.begun) >= d
}

// takeBack takes the message back, unless the consumer works on it.
func (s *handedOver) takeBack() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun.IsZero() {
		s.loseLocked()
	}
	return s.begun.IsZero()
}

// lose ends the right to work on the message, and reports whether the consumer works on it.
func (s *handedOver) lose() (works bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseLocked()
	return !s.begun.IsZero()
}

func (s *handedOver) loseLocked() {
	if !s.isLost {
		s.isLost = true
		close(s.lost)
	}
	if s.begun.IsZero() {
		s.end(errPutBack)
	}
}

// end records the outcome. The first one counts.
func (s *handedOver) end(outcome error) {
	if !s.ended {
		s.ended = true
		s.settled <- outcome
	}
}

func (s *handedOver) settle(outcome error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(outcome)
}

// Ack implements postrider.Settler.
func (s *handedOver) Ack(context.Context) error {
	s.settle(nil)
	return nil
}

// Nack implements postrider.Settler. The relay takes the message back without counting an attempt, and redelivers it
// shortly.
func (s *handedOver) Nack(context.Context, time.Duration) error {
	s.settle(postrider.Unavailable(errHandedBack))
	return nil
}

// Reject implements postrider.Settler.
func (s *handedOver) Reject(context.Context, string) error {
	s.settle(nil)
	return nil
}

// Extend implements postrider.Settler: a relay waits as long as it holds its lease.
func (*handedOver) Extend(context.Context) error { return nil }

// Lost implements postrider.Settler.
func (s *handedOver) Lost() <-chan struct{} { return s.lost }
