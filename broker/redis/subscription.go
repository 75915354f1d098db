package redisbroker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/postrider/postrider"
)

// firstPoll is the delay before the second read for new messages. It doubles after each empty read, up to
// SubscriberConfig.Poll.
const firstPoll = time.Millisecond

// subscription is one process of a group. Receive starts reads, one at a time for all streams. A read continues when its
// Receive is canceled; the next Receive returns its messages.
type subscription struct {
	s        *Subscriber
	consumer string
	members  string // key of the group's sorted set of members
	wake     chan struct{}
	done     chan struct{}  // closed by Close
	running  sync.WaitGroup // the keep goroutine, and reads
	settling sync.WaitGroup

	mu         sync.Mutex
	partitions []*partition
	waiting    []*delivery // read, but not returned by Receive yet
	reading    bool
	removed    []error // returned by Receive, each once
	fault      error   // returned by Receive once
	nextPoll   time.Time
	pause      time.Duration // next polling delay
	closed     bool
}

var _ postrider.Subscription = (*subscription)(nil)

func newSubscription(s *Subscriber) *subscription {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	sub := &subscription{
		s: s, consumer: fmt.Sprintf("%s-%s-%d-%s", s.cfg.Name, host, os.Getpid(), strings.ToLower(rand.Text()[:8])),
		members: s.cfg.Prefix + "{" + s.cfg.Group + "}:members", wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	for _, topic := range s.cfg.Topics {
		for i := range s.cfg.Partitions {
			p := &partition{sub: sub, stream: streamOf(s.cfg.Prefix, topic, i), name: fmt.Sprintf("%s/%d", topic, i)}
			p.lease = time.AfterFunc(time.Hour, p.expire)
			p.lease.Stop()
			sub.partitions = append(sub.partitions, p)
		}
	}
	return sub
}

// join makes sure that all streams have the group, and starts extending pending entries.
func (s *subscription) join(ctx context.Context) error {
	began := time.Now()
	if err := s.enter(ctx); err != nil {
		return err
	}
	cmds, err := runScript(ctx, s.s.client, takeScript, s.takes(s.partitions, 0))
	if err != nil {
		return outcome(ctx, err)
	}
	for i, cmd := range cmds {
		t, err := readTaken(cmd)
		if err != nil {
			return outcome(ctx, err)
		}
		s.removed = append(s.removed, s.partitions[i].removals(t)...)
		s.take(s.partitions[i], t, began)
	}
	s.running.Go(s.keep)
	return nil
}

// takes returns the invocations of take.lua for partitions, each for up to count entries.
func (s *subscription) takes(partitions []*partition, count int) []invocation {
	calls := make([]invocation, len(partitions))
	for i, p := range partitions {
		_, room := p.readable(time.Now())
		wanted := "0"
		if p.mine && p.rewind == "" {
			wanted = "1"
		}
		calls[i] = invocation{p.stream, []any{
			s.s.cfg.Group, s.consumer, min(count, room), s.s.cfg.ClaimAfter.Milliseconds(), p.rewind, wanted, rand.Text()[:16],
		}}
	}
	return calls
}

func (s *subscription) tell() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// hurry makes the next read start immediately. It needs s.mu.
func (s *subscription) hurry() {
	s.pause, s.nextPoll = firstPoll, time.Time{}
	s.tell()
}

// Receive implements postrider.Subscription.
func (s *subscription) Receive(ctx context.Context, limit int) ([]*postrider.Delivery, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		out, wait, err := s.next(limit)
		if len(out) > 0 || err != nil {
			return out, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-s.done:
		case <-s.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// next returns waiting deliveries. If there are none, it starts a read if one is due, and returns how long to wait.
func (s *subscription) next(limit int) ([]*postrider.Delivery, time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, 0, postrider.ErrSubscriptionClosed
	}
	if len(s.removed) > 0 {
		err := s.removed[0]
		s.removed = s.removed[1:]
		return nil, 0, err
	}
	var out []*postrider.Delivery
	for len(s.waiting) > 0 && len(out) < limit {
		if d := s.waiting[0]; d.open {
			out = append(out, d.out)
		}
		s.waiting = s.waiting[1:]
	}
	if err := s.fault; len(out) == 0 && err != nil {
		s.fault = nil
		return nil, 0, err
	}
	if len(out) > 0 || s.reading {
		return out, s.s.cfg.Poll, nil
	}
	if wait := time.Until(s.nextPoll); wait > 0 {
		return nil, wait, nil
	}
	s.read(limit)
	return nil, s.s.cfg.Poll, nil
}

// read starts a read of all readable partitions. It needs s.mu.
func (s *subscription) read(limit int) {
	var partitions []*partition
	var generations []int
	now := time.Now()
	for _, p := range s.partitions {
		if ok, _ := p.readable(now); ok {
			partitions, generations = append(partitions, p), append(generations, p.generation)
		}
	}
	if len(partitions) == 0 {
		s.slower(false)
		return
	}
	s.reading = true
	calls := s.takes(partitions, max(limit/len(partitions), 1))
	s.running.Go(func() {
		cmds, err := runScript(context.Background(), s.s.client, takeScript, calls)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reading = false
		more := false
		for i, p := range partitions {
			t, e := answerOf(cmds, i)
			err = cmp.Or(err, e)
			s.removed = append(s.removed, p.removals(t)...)
			switch {
			case e != nil:
				p.rewind = "0" // the server may have recorded deliveries that did not arrive
			case p.generation == generations[i]:
				more = s.take(p, t, now) || more
			case len(t.entries) > 0 || t.happened == "claimed":
				p.rewind = "0" // the entries come after ones that were given back meanwhile
			}
		}
		if err != nil {
			s.fault = unavailable(fmt.Errorf("read from Redis: %w", outcome(context.Background(), err)))
		}
		s.slower(more)
		s.tell()
	})
}

// answerOf parses the answer for the ith partition.
func answerOf(cmds []*redis.Cmd, i int) (taken, error) {
	if i >= len(cmds) {
		return taken{}, errAnswer
	}
	return readTaken(cmds[i])
}

// slower schedules the next read: immediately if there may be more, otherwise with a longer delay than before. It needs
// s.mu.
func (s *subscription) slower(more bool) {
	if more {
		s.pause, s.nextPoll = firstPoll, time.Time{}
		return
	}
	s.nextPoll = time.Now().Add(s.pause)
	s.pause = min(max(2*s.pause, firstPoll), s.s.cfg.Poll)
}

// take records the result of a read that started at the given time, and reports whether there may be more.
func (s *subscription) take(p *partition, t taken, asked time.Time) bool {
	if s.closed {
		return false
	}
	delivered := p.integrate(t)
	if p.pending() {
		p.renew(asked)
	}
	s.waiting = append(s.waiting, delivered...)
	return len(delivered) > 0 || p.rewind != "" && !p.busy
}

// keep extends the pending entries and the process's membership until Close.
func (s *subscription) keep() {
	tick := time.NewTicker(s.s.cfg.ClaimAfter / 4)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), s.s.cfg.PublishTimeout)
		err := errors.Join(s.touch(ctx), s.enter(ctx))
		cancel()
		if err != nil {
			s.s.cfg.Logger.Warn("a consumer could not tell Redis that it is alive; others may claim its messages", "consumer", s.consumer, "error", err)
		}
	}
}

// touch tells the server that the pending entries are being worked on.
func (s *subscription) touch(ctx context.Context) error {
	s.mu.Lock()
	var held []*partition
	for _, p := range s.partitions {
		if p.pending() && !p.busy {
			held = append(held, p)
		}
	}
	s.mu.Unlock()
	if len(held) == 0 {
		return nil
	}
	began := time.Now()
	cmds, err := runScript(ctx, s.s.client, keepScript, s.keeps(held, 0))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, cmd := range cmds {
		if n, e := cmd.Int(); e == nil && n > 0 && !s.closed {
			held[i].renew(began)
		}
	}
	return outcome(ctx, err)
}

// keeps returns the invocations of keep.lua for partitions.
func (s *subscription) keeps(partitions []*partition, idle time.Duration) []invocation {
	calls := make([]invocation, len(partitions))
	for i, p := range partitions {
		calls[i] = invocation{p.stream, []any{s.s.cfg.Group, s.consumer, idle.Milliseconds()}}
	}
	return calls
}

// enter registers the process as a member, and determines which partitions it may read.
func (s *subscription) enter(ctx context.Context) error {
	cmds, err := runScript(ctx, s.s.client, membersScript, []invocation{{s.members, []any{s.consumer, s.s.cfg.ClaimAfter.Milliseconds()}}})
	if err != nil {
		return outcome(ctx, err)
	}
	names, err := cmds[0].StringSlice()
	if err != nil {
		return fmt.Errorf("%w: members: %w", errAnswer, err)
	}
	slices.Sort(names)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, p := range s.partitions {
		p.mine = names[i%len(names)] == s.consumer
	}
	return nil
}

// Close implements postrider.Subscription. Others can claim unsettled messages immediately.
func (s *subscription) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.done)
	for _, p := range s.partitions {
		p.loseAll()
		p.lease.Stop()
	}
	s.waiting = nil
	s.mu.Unlock()
	s.running.Wait() // all of these have timeouts
	s.settling.Wait()
	_, err := runScript(ctx, s.s.client, keepScript, s.keeps(s.partitions, 10*s.s.cfg.ClaimAfter))
	if e := s.s.client.ZRem(ctx, s.members, s.consumer).Err(); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("close subscription to Redis: %w; what is not settled can be claimed after %s", outcome(ctx, err), s.s.cfg.ClaimAfter)
	}
	return nil
}
