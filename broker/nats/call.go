package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/postrider/postrider"
)

// call is one Publish under way. Its goroutine sends; acknowledgements come in on the connection's. A message goes
//
//	behind → ready → sent → done
//
// where a message without a predecessor of its key in this call starts ready, and one behind a failed message goes
// straight to done, with an error.
type call struct {
	p      *Publisher
	number uint64
	lost   <-chan struct{} // the connection broke
	msgs   []*postrider.Message
	wake   chan struct{} // something changed that the sending goroutine may wait for

	// Of the sending goroutine.
	encoder encoder
	fresh   int         // msgs[:fresh] have been looked at
	pending []sentAt    // in the order of sending; may begin with messages that are done
	timer   *time.Timer // for the first of pending

	mu       sync.Mutex
	state    []state
	errs     []error
	follower []int32 // the next message of the same key; 0 for none, since no message follows as the first
	ready    []int32 // followers that may be sent
	open     int     // messages that are not done
}

type state uint8

const (
	isReady state = iota
	isBehind
	isSent
	isDone
)

type sentAt struct {
	index int32
	at    time.Time
}

func newCall(p *Publisher, number uint64, lost <-chan struct{}, msgs []*postrider.Message) *call {
	c := &call{
		p: p, number: number, lost: lost, msgs: msgs,
		wake:     make(chan struct{}, 1),
		encoder:  newEncoder(p, number),
		state:    make([]state, len(msgs)),
		errs:     make([]error, len(msgs)),
		follower: make([]int32, len(msgs)),
		open:     len(msgs),
	}
	last := make(map[string]int32)
	for i, m := range msgs {
		if m.Key == "" {
			continue
		}
		if before, ok := last[m.Key]; ok {
			c.follower[before] = int32(i)
			c.state[i] = isBehind
		}
		last[m.Key] = int32(i)
	}
	return c
}

// run sends until every message is done or the call has to be given up.
func (c *call) run(ctx context.Context) []error {
	c.refuseTooLarge()
	c.timer = time.NewTimer(c.p.cfg.AckWait)
	defer c.timer.Stop()
	closing := c.p.closing
	for next := -1; ; {
		if next < 0 {
			var finished bool
			if next, finished = c.take(); finished {
				return c.result()
			}
		}
		var window chan<- struct{}
		if next >= 0 && ctx.Err() == nil {
			window = c.p.window
			select {
			case window <- struct{}{}:
				c.send(next)
				next = -1
				continue
			default:
			}
		}
		select {
		case window <- struct{}{}:
			c.send(next)
			next = -1
		case <-c.wake:
		case <-c.timer.C:
			c.expire()
		case <-closing:
			closing, next = nil, -1
			c.stop(postrider.Unavailable(fmt.Errorf("publish to NATS: %w", ErrClosed)))
		case <-c.lost:
			next = -1
			c.giveUp(postrider.Unavailable(errors.New("publish to NATS: the connection broke before the acknowledgement; the stream may have the message")))
		case <-ctx.Done():
			next = -1
			c.giveUp(fmt.Errorf("publish to NATS: %w", ctx.Err()))
		}
	}
}

// refuseTooLarge lets go of what the server would not take, before anything is sent.
func (c *call) refuseTooLarge() {
	limit := c.p.caps.MaxMessageBytes
	for i, m := range c.msgs {
		if size := m.Size(); size > limit {
			c.finish(i, tooLarge(fmt.Errorf("%d bytes; the limit is %d, from the server's max_payload or the stream's max_msg_size", size, limit)))
		}
	}
}

// take returns the next message that may be sent, -1 if there is none now, and whether all messages are done.
func (c *call) take() (next int, finished bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.ready); n > 0 {
		i := c.ready[0]
		c.ready = c.ready[1:]
		return int(i), false
	}
	for ; c.fresh < len(c.msgs); c.fresh++ {
		if i := c.fresh; c.state[i] == isReady {
			c.fresh++
			return i, false
		}
	}
	return -1, c.open == 0
}

// send sends a message for which there is room in the window.
func (c *call) send(i int) {
	c.mu.Lock()
	c.state[i] = isSent
	c.mu.Unlock()
	msg, err := c.encoder.encode(i, c.msgs[i])
	if err == nil {
		c.pending = append(c.pending, sentAt{int32(i), time.Now()})
		if len(c.pending) == 1 {
			c.timer.Reset(c.p.cfg.AckWait)
		}
		err = c.p.conn.PublishMsg(msg)
	}
	switch {
	case err == nil:
	case isUnsendable(err):
		c.giveUp(postrider.Unavailable(fmt.Errorf("publish to NATS: %w", err)))
	case errors.Is(err, nats.ErrMaxPayload):
		c.finish(i, tooLarge(err))
	default:
		c.finish(i, fmt.Errorf("publish to NATS: %w", err)) // which may be tooLarge, of encode
	}
}

// isUnsendable says whether the connection takes nothing at all.
func isUnsendable(err error) bool {
	return errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrConnectionDraining) ||
		errors.Is(err, nats.ErrConnectionReconnecting) || errors.Is(err, nats.ErrReconnectBufExceeded)
}

// answer takes in the server's answer to message i. It runs on the goroutine of the subscription.
func (c *call) answer(i int, m *nats.Msg) {
	if i >= len(c.msgs) {
		return
	}
	c.finish(i, c.p.verdict(m, c.msgs[i]))
}

// finish records the result of message i, if it has none yet, and what follows from it for its followers.
func (c *call) finish(i int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state[i] == isDone {
		return
	}
	c.done(i, err)
	next := int(c.follower[i])
	switch {
	case next == 0 || c.state[next] == isDone:
	case err == nil:
		c.state[next] = isReady
		c.ready = append(c.ready, int32(next))
	default:
		behind := postrider.Behind(c.msgs[i], err)
		for ; next != 0 && c.state[next] != isDone; next = int(c.follower[next]) {
			c.done(next, behind)
		}
	}
	if len(c.ready) > 0 || c.open == 0 {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// done records a result and gives back the message's place in the window. It needs c.mu.
func (c *call) done(i int, err error) {
	if c.state[i] == isSent {
		<-c.p.window
	}
	c.state[i], c.errs[i] = isDone, err
	c.open--
}

// expire fails the messages that have waited for their acknowledgement for AckWait, and sets the timer for the next one.
func (c *call) expire() {
	for len(c.pending) > 0 {
		first := c.pending[0]
		if !c.isDone(int(first.index)) {
			left := c.p.cfg.AckWait - time.Since(first.at)
			if left > 0 {
				c.timer.Reset(left)
				return
			}
			c.finish(int(first.index), c.p.noAnswer(c.msgs[first.index]))
		}
		c.pending = c.pending[1:]
	}
}

func (c *call) isDone(i int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state[i] == isDone
}

// giveUp ends every message that is not done with err.
func (c *call) giveUp(err error) { c.end(err, isReady, isBehind, isSent) }

// stop ends every message that is not sent with err; those that are sent may still be acknowledged.
func (c *call) stop(err error) { c.end(err, isReady, isBehind) }

func (c *call) end(err error, in ...state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range c.state {
		if slices.Contains(in, s) {
			c.done(i, err)
		}
	}
	c.ready = nil
}

// result returns the errors, nil if there are none.
func (c *call) result() []error {
	if slices.ContainsFunc(c.errs, func(err error) bool { return err != nil }) {
		return c.errs
	}
	return nil
}
