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

// firstPoll is the wait before the second look for new messages; it doubles with each look in vain, up to
// SubscriberConfig.Poll.
const firstPoll = time.Millisecond

// subscription is one process of a group. Streams are read when Receive is called, one reading at a time for all of them. A
// reading goes on when its Receive is cancelled, and what it brings waits for the next one.
type subscription struct {
	s        *Subscriber
	consumer string
	members  string // the key of the group's sorted set
	wake     chan struct{}
	done     chan struct{}  // closed by Close
	running  sync.WaitGroup // the keeper, and readings
	settling sync.WaitGroup

	mu         sync.Mutex
	partitions []*partition
	waiting    []*delivery // read, and not handed out yet
	reading    bool
	fault      error // for Receive to report, once
	nextPoll   time.Time
	pause      time.Duration // before the look after that
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

// join makes sure that all streams have the group, and starts to keep what will be read.
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
		s.take(s.partitions[i], t, began)
	}
	s.running.Go(s.keep)
	return nil
}

// takes are the invocations of take.lua for some partitions, each for so many entries.
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

// hurry has the streams read soon. It needs s.mu.
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

// next returns what waits, or else starts a reading if it is time and none is under way, and says how long to wait.
func (s *subscription) next(limit int) ([]*postrider.Delivery, time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, 0, postrider.ErrSubscriptionClosed
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

// read starts a reading of all partitions that may be read. It needs s.mu.
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
			switch {
			case e != nil:
				p.rewind = "0" // the server may believe something to be delivered
			case p.generation == generations[i]:
				more = s.take(p, t, now) || more
			case len(t.entries) > 0 || t.happened == "claimed":
				p.rewind = "0" // these come behind something that was given back meanwhile
			}
		}
		if err != nil {
			s.fault = unavailable(fmt.Errorf("read from Redis: %w", outcome(context.Background(), err)))
		}
		s.slower(more)
		s.tell()
	})
}

// answerOf reads the answer to a reading of the ith partition.
func answerOf(cmds []*redis.Cmd, i int) (taken, error) {
	if i >= len(cmds) {
		return taken{}, errAnswer
	}
	return readTaken(cmds[i])
}

// slower sets the time of the next look: at once if there may be more, or else later than the last time. It needs s.mu.
func (s *subscription) slower(more bool) {
	if more {
		s.pause, s.nextPoll = firstPoll, time.Time{}
		return
	}
	s.nextPoll = time.Now().Add(s.pause)
	s.pause = min(max(2*s.pause, firstPoll), s.s.cfg.Poll)
}

// take takes in what was read of a partition, asked for at a time, and says whether there may be more.
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

// keep keeps what is pending here from being claimed, and the process among the members, until Close.
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
			s.s.cfg.Logger.Warn("Redis does not hear that a consumer lives; others may claim what it has", "consumer", s.consumer, "error", err)
		}
	}
}

// touch tells the server that what is pending here is being worked on.
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

// keeps are the invocations of keep.lua for some partitions.
func (s *subscription) keeps(partitions []*partition, idle time.Duration) []invocation {
	calls := make([]invocation, len(partitions))
	for i, p := range partitions {
		calls[i] = invocation{p.stream, []any{s.s.cfg.Group, s.consumer, idle.Milliseconds()}}
	}
	return calls
}

// enter enters the process among the members, and finds out which partitions are its own to read.
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

// Close implements postrider.Subscription. What is not settled can be claimed by others at once.
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
	s.running.Wait() // each of these has a limit
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
