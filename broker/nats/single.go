package natsbroker

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// single is the state of a call that sends single messages, each with its own acknowledgement, one per key at a time.
// The states of a message are
//
//	behind → ready → sent → done
//
// A message without a predecessor of its key in the call starts as ready. A message after a failed one of its key goes
// straight to done, with an error.
type single struct {
	only   bool          // require this publisher's stream, whatever is known about the subjects
	number uint64        // acknowledgements arrive at <inbox>.<number>.<message>
	wake   chan struct{} // signals changes to the sending goroutine

	// Used only by the sending goroutine.
	fresh   int         // msgs[:fresh] have been considered
	pending []sentAt    // in send order; may begin with messages that are done
	timer   *time.Timer // for the first entry of pending

	// Guarded by the call's mu.
	ready     []int32      // messages that can be sent because their predecessor is done
	strangers map[int]bool // messages that something other than a stream has answered
}

type sentAt struct {
	index int32
	at    time.Time
}

// oneByOne sends every message that has no result, and returns when all have one.
func (c *call) oneByOne(ctx context.Context) {
	if !c.beginOneByOne() {
		return
	}
	defer c.p.removeWaiter(c.single.number)
	c.single.timer = time.NewTimer(c.p.cfg.PublishTimeout)
	defer c.single.timer.Stop()
	closing := c.p.closing
	for next := -1; ; {
		select {
		case <-closing:
			closing, next = nil, -1
			c.closed()
		default:
		}
		if next < 0 {
			var finished bool
			if next, finished = c.take(); finished {
				return
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
		case <-closing: // handled at the top of the loop
		case window <- struct{}{}:
			c.send(next)
			next = -1
		case <-c.single.wake:
		case <-c.single.timer.C:
			c.expire()
		case <-c.lost:
			next = -1
			c.broken()
		case <-ctx.Done():
			next = -1
			c.cancelled(ctx)
		}
	}
}

// beginOneByOne prepares the messages that are not done. It returns false if there are none.
func (c *call) beginOneByOne() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == 0 {
		return false
	}
	c.link()
	for i, next := range c.nextOfKey {
		if next != 0 && c.state[i] != isDone && c.state[next] != isDone {
			c.state[next] = isQueued
		}
	}
	c.single.wake = make(chan struct{}, 1)
	c.single.number = c.p.expect(c)
	return true
}

// take returns the next message to send, -1 if there is none now, and whether all messages are done.
func (c *call) take() (next int, finished bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.single
	for len(s.ready) > 0 {
		i := s.ready[0]
		s.ready = s.ready[1:]
		if c.state[i] == isReady {
			return int(i), false
		}
	}
	for ; s.fresh < len(c.msgs); s.fresh++ {
		if i := s.fresh; c.state[i] == isReady {
			s.fresh++
			return i, false
		}
	}
	return -1, c.open == 0
}

// send sends a message, which already has its entry in the window.
func (c *call) send(i int) {
	c.mu.Lock()
	c.state[i] = isSent
	c.mu.Unlock()
	msg, err := c.encoder.encode(c.msgs[i], c.single.only)
	if err == nil {
		s := &c.single
		s.pending = append(s.pending, sentAt{int32(i), time.Now()})
		if len(s.pending) == 1 {
			s.timer.Reset(c.p.cfg.PublishTimeout)
		}
		msg.Reply = c.encoder.singleReply(s.number, i)
		err = c.p.conn.PublishMsg(msg)
	}
	if err != nil {
		c.refusedHere(i, err)
	}
}

// answer handles the server's answer to the message that rest names. It runs on the subscription's goroutine.
func (c *call) answer(rest string, m *nats.Msg) (known bool) {
	n, err := strconv.ParseUint(rest, 36, 31)
	i := int(n)
	if err != nil || i >= len(c.msgs) {
		return false
	}
	known, err = c.p.evaluate(m, c.msgs[i])
	if known {
		c.finish(i, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !known {
		if c.single.strangers == nil {
			c.single.strangers = make(map[int]bool)
		}
		c.single.strangers[i] = true
		return false
	}
	if next := c.nextOfKey[i]; next != 0 && c.state[next] == isQueued {
		c.state[next] = isReady
		c.single.ready = append(c.single.ready, next)
	}
	if len(c.single.ready) > 0 || c.open == 0 {
		select {
		case c.single.wake <- struct{}{}:
		default:
		}
	}
	return true
}

// expire fails the messages that have been unacknowledged for PublishTimeout, and sets the timer for the next one.
func (c *call) expire() {
	s := &c.single
	for len(s.pending) > 0 {
		first := s.pending[0]
		if !c.isDone(int(first.index)) {
			left := c.p.cfg.PublishTimeout - time.Since(first.at)
			if left > 0 {
				s.timer.Reset(left)
				return
			}
			c.finish(int(first.index), c.p.noAnswer(c.msgs[first.index], c.isStrange(int(first.index))))
		}
		s.pending = s.pending[1:]
	}
}

func (c *call) isDone(i int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state[i] == isDone
}

func (c *call) isStrange(i int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.single.strangers[i]
}

var _ waiter = (*call)(nil)
