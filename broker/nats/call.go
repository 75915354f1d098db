package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/postrider/postrider"
)

// call is one Publish call: its messages and their results. Its goroutine sends, in batches (batch.go) or one by one
// (single.go); answers arrive on the connection's goroutine.
type call struct {
	p       *Publisher
	lost    <-chan struct{} // closed when the connection breaks
	msgs    []*postrider.Message
	encoder encoder // used by the sending goroutine
	single  single

	mu        sync.Mutex
	state     []state
	errs      []error
	nextOfKey []int32 // next message of the same key; 0 for none, because message 0 follows nothing. See link
	open      int     // messages that are not done
}

// state is the state of a message. Until a message is done, it may move between the other states in any order: what a
// batch has not delivered is sent again.
type state uint8

const (
	isReady  state = iota // can be sent
	isQueued              // waits for its predecessor of the same key (one by one only)
	isSent                // sent, with an entry in the window
	isDone
)

func newCall(p *Publisher, lost <-chan struct{}, msgs []*postrider.Message) *call {
	return &call{
		p: p, lost: lost, msgs: msgs,
		encoder: newEncoder(p),
		state:   make([]state, len(msgs)),
		errs:    make([]error, len(msgs)),
		open:    len(msgs),
	}
}

// refuseTooLarge fails messages that are too large for the server, before anything is sent.
func (c *call) refuseTooLarge() {
	limit := c.p.caps.MaxMessageBytes
	for i, m := range c.msgs {
		if size := m.Size(); size > limit {
			c.finish(i, tooLarge(fmt.Errorf("%d bytes; the limit is %d, from the server's max_payload or the stream's max_msg_size", size, limit)))
		}
	}
}

// refusedHere sets the result of a message that the client could not send. It returns false if that ends the call.
func (c *call) refusedHere(i int, err error) (proceed bool) {
	switch {
	case isUnsendable(err):
		c.failRest(postrider.Unavailable(fmt.Errorf("publish to NATS: %w", err)))
		return false
	case errors.Is(err, nats.ErrMaxPayload):
		c.finish(i, tooLarge(err))
	default:
		c.finish(i, fmt.Errorf("publish to NATS: %w", err)) // may be tooLarge, from encode
	}
	return true
}

// isUnsendable reports whether the connection cannot send anything.
func isUnsendable(err error) bool {
	return errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrConnectionDraining) ||
		errors.Is(err, nats.ErrConnectionReconnecting) || errors.Is(err, nats.ErrReconnectBufExceeded)
}

// link sets nextOfKey on its first call. It needs c.mu.
func (c *call) link() {
	if c.nextOfKey != nil {
		return
	}
	c.nextOfKey = make([]int32, len(c.msgs))
	last := make(map[string]int32)
	for i, m := range c.msgs {
		if m.Key == "" {
			continue
		}
		if before, ok := last[m.Key]; ok {
			c.nextOfKey[before] = int32(i)
		}
		last[m.Key] = int32(i)
	}
}

// finish sets the result of message i unless it has one. If err is not nil, the later messages of its key fail too.
func (c *call) finish(i int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state[i] == isDone {
		return
	}
	c.done(i, err)
	if err == nil || c.msgs[i].Key == "" {
		return
	}
	c.link()
	failed := postrider.PredecessorFailed(c.msgs[i], err)
	for next := c.nextOfKey[i]; next != 0 && c.state[next] != isDone; next = c.nextOfKey[next] {
		c.done(int(next), failed)
	}
}

// done sets a result and frees the message's entry in the window. It needs c.mu.
func (c *call) done(i int, err error) {
	if c.state[i] == isSent {
		<-c.p.window
	}
	c.state[i], c.errs[i] = isDone, err
	c.open--
}

// failRest ends every message that is not done with err.
func (c *call) failRest(err error) { c.end(err, isReady, isQueued, isSent) }

// stop ends every message that is not sent with err. Messages that are sent may still be acknowledged.
func (c *call) stop(err error) { c.end(err, isReady, isQueued) }

func (c *call) end(err error, in ...state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range c.state {
		if slices.Contains(in, s) {
			c.done(i, err)
		}
	}
}

// Reasons for which a call ends early.

func (c *call) closed() {
	c.stop(postrider.Unavailable(fmt.Errorf("publish to NATS: %w", ErrClosed)))
}

func (c *call) broken() {
	c.failRest(postrider.Unavailable(errors.New("publish to NATS: the connection broke before the acknowledgement; the stream may have the message")))
}

func (c *call) cancelled(ctx context.Context) {
	c.failRest(fmt.Errorf("publish to NATS: %w", ctx.Err()))
}

// result returns the errors, nil if there are none.
func (c *call) result() []error {
	if slices.ContainsFunc(c.errs, func(err error) bool { return err != nil }) {
		return c.errs
	}
	return nil
}
