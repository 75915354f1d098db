package natsbroker

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// single is what a call needs to send messages one by one, each with an acknowledgement of its own, and of each key one at
// a time. A message goes
//
//	behind → ready → sent → done
//
// where a message without a predecessor of its key in this call starts ready, and one behind a failed message goes
// straight to done, with an error.
type single struct {
	only   bool          // no other stream may take the messages, whatever is known of their subjects
	number uint64        // acknowledgements come to <inbox>.<number>.<message>
	wake   chan struct{} // something changed that the sending goroutine may wait for

	// Of the sending goroutine.
	fresh   int         // msgs[:fresh] have been looked at
	pending []sentAt    // in the order of sending; may begin with messages that are done
	timer   *time.Timer // for the first of pending

	// With the call's mu.
	ready     []int32      // followers that may be sent
	strangers map[int]bool // messages to which something else than a stream has answered
}

type sentAt struct {
	index int32
	at    time.Time
}

// oneByOne sends every message that has no result yet until all have one, or the call has to be given up.
func (c *call) oneByOne(ctx context.Context) {
	if !c.beginOneByOne() {
		return
	}
	defer c.p.forget(c.single.number)
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
		case <-closing: // seen to above
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

// beginOneByOne prepares what is not done, if anything is not.
func (c *call) beginOneByOne() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == 0 {
		return false
	}
	c.link()
	for i, next := range c.follower {
		if next != 0 && c.state[i] != isDone && c.state[next] != isDone {
			c.state[next] = isBehind
		}
	}
	c.single.wake = make(chan struct{}, 1)
	c.single.number = c.p.expect(c)
	return true
}

// take returns the next message that may be sent, -1 if there is none now, and whether all messages are done.
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

// send sends a message for which there is room in the window.
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

// answer takes in the server's answer to the message that rest names. It runs on the goroutine of the subscription.
func (c *call) answer(rest string, m *nats.Msg) (known bool) {
	n, err := strconv.ParseUint(rest, 36, 31)
	i := int(n)
	if err != nil || i >= len(c.msgs) {
		return false
	}
	known, err = c.p.verdict(m, c.msgs[i])
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
	if next := c.follower[i]; next != 0 && c.state[next] == isBehind {
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

// expire fails the messages that have waited for their acknowledgement for PublishTimeout, and sets the timer for the next one.
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
