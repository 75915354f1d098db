package inbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/attempt"
)

// Limits of the wait before the broker is tried again.
const (
	sourceRetryMin = 100 * time.Millisecond
	sourceRetryMax = 5 * time.Second
)

// quietFor is how long a call that reads waits without an error before the broker counts as available: there may be nothing to read.
const quietFor = time.Minute

// receiveLoop joins the group and reads until the consumer stops.
func (c *Consumer[Tx]) receiveLoop() error {
	var failures atomic.Int64
	available := func() {
		c.connected.Store(true)
		if failures.Swap(0) > 0 {
			c.cfg.Logger.Info("the broker is available again", "consumer", c.cfg.Name)
		}
	}
	for c.life.Err() == nil {
		var err error
		if c.subscription == nil {
			err = c.subscribe()
		} else {
			err = c.receive(available)
		}
		switch {
		case err == nil:
			available()
			continue
		case c.life.Err() != nil:
			return nil
		case errors.Is(err, postrider.ErrSubscriptionClosed):
			return fmt.Errorf("consumer %s: %w", c.cfg.Name, err)
		case c.subscription == nil && postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable:
			return fmt.Errorf("consumer %s: subscribe: %w", c.cfg.Name, err)
		}
		c.connected.Store(false)
		n := int(failures.Add(1))
		if n == 1 {
			c.cfg.Logger.Warn("consumer cannot read from the broker and keeps trying", "consumer", c.cfg.Name, "error", err)
		}
		attempt.Sleep(c.life, attempt.Backoff(sourceRetryMin, sourceRetryMax, n))
	}
	return nil
}

func (c *Consumer[Tx]) subscribe() error {
	var s postrider.Subscription = c.log
	var err error
	if c.log != nil {
		err = c.log.start(c.life)
	} else {
		s, err = c.subscriber.Subscribe(c.life)
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscription = s
	return nil
}

// receive reads once there is capacity. It calls available if the broker seems to be, and has nothing to read.
func (c *Consumer[Tx]) receive(available func()) error {
	limit := c.awaitRoom()
	if limit == 0 {
		return nil
	}
	quiet := time.AfterFunc(quietFor, available)
	deliveries, err := c.subscription.Receive(c.life, limit)
	quiet.Stop()
	if e, ok := errors.AsType[*postrider.RemovedError](err); ok {
		c.miss(e)
		return nil
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range deliveries {
		c.admit(d)
	}
	if len(c.ready) > 0 {
		c.work.Signal()
	}
	return nil
}

// miss records messages that the broker removed from a group before they were settled.
func (c *Consumer[Tx]) miss(e *postrider.RemovedError) {
	c.updateStats(func(s *Stats) { s.Missing += e.Messages })
	c.cfg.Logger.Error("the broker removed messages before this consumer had acknowledged them: its retention is too short, or the "+
		"consumer was away for too long. Publish them again if they matter (replay)", "consumer", c.cfg.Name,
		"partition", e.Partition, "messages", e.Messages, "from", e.From, "to", e.To, "delivered", e.Delivered)
}

// awaitRoom waits for capacity, and returns for how many messages, estimated from the mean message size so far; 0 when
// the consumer stops.
func (c *Consumer[Tx]) awaitRoom() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for (!c.hasRoom() || c.closed()) && c.life.Err() == nil {
		c.room.Wait()
	}
	if c.life.Err() != nil {
		return 0
	}
	mean := 1024
	if c.received > 0 {
		mean = int(c.sized/int64(c.received)) + 1
	}
	return max(min(c.cfg.MaxInFlight-len(c.inMemory), (c.cfg.MaxInFlightBytes-c.bytes)/mean), 1)
}

// hasRoom says whether a quarter of the memory is free, so that reads are few and large.
func (c *Consumer[Tx]) hasRoom() bool {
	return len(c.inMemory) == 0 || c.cfg.MaxInFlight-len(c.inMemory) >= max(c.cfg.MaxInFlight/4, 1) &&
		c.cfg.MaxInFlightBytes-c.bytes >= max(c.cfg.MaxInFlightBytes/4, 1)
}

// admit adds a delivery to its queue. One that is not a message, or cannot be deduplicated, is dead-lettered.
func (c *Consumer[Tx]) admit(d *postrider.Delivery) {
	it := &item{delivery: d, msg: d.Message, extended: time.Now()}
	switch s := d.Settler.(type) {
	case *logEntry:
		it.session = s.session
	case *handedOver:
		it.handed = s
	}
	switch {
	case d.Err != nil || d.Message == nil:
		it.msg = legible(d)
		it.fate = &fate{dead: true, reason: postrider.Undecodable, cause: attempt.CauseText(d.Err)}
	case d.Message.ID == "":
		m := *d.Message
		m.ID = substituteID(d)
		it.msg = &m
		if c.caps.Positions {
			break
		}
		it.fate = &fate{dead: true, reason: postrider.Undecodable, cause: "the message has no ID, by which it could be told " +
			"from others; let its publisher give it one"}
	}
	it.msg = storable(it.msg)
	it.size = it.msg.Size()
	c.enqueue(it, queueOf(it.msg))
}

// substituteID derives an ID for a message without one from its position in the source and its mark, or else from its
// content. It is the same whether a log is read as a whole or in parts.
func substituteID(d *postrider.Delivery) string {
	content := d.Raw
	if p := d.Position; p != (postrider.Position{}) {
		if e, ok := d.Settler.(*logEntry); ok {
			p.Partition = cmp.Or(e.session.part.Whole, p.Partition)
		}
		content = fmt.Appendf(nil, "%q %q %d %q", p.Incarnation, p.Partition, p.Offset, p.Mark)
	} else if d.Message != nil && content == nil {
		content = d.Message.Payload
	}
	sum := sha256.Sum256(content)
	return "unnamed-" + hex.EncodeToString(sum[:16])
}

// legible builds a message from the readable parts of a delivery. Its payload is the raw content.
func legible(d *postrider.Delivery) *postrider.Message {
	var m postrider.Message
	if d.Message != nil {
		m = *d.Message
	}
	if d.Raw != nil {
		m.Payload = d.Raw
	}
	if m.ID == "" {
		m.ID = substituteID(d)
	}
	return &m
}

// stamped returns the message to park or dead-letter, with its position.
func (it *item) stamped() *postrider.Message {
	if it.delivery.Position == (postrider.Position{}) {
		return it.msg
	}
	text, err := json.Marshal(it.delivery.Position)
	if err != nil {
		panic(err) // text and numbers always marshal
	}
	return withHeader(it.msg, PositionHeader, string(text))
}

// extendLoop extends the broker's wait for messages in memory, at a third of AckWait.
func (c *Consumer[Tx]) extendLoop(ctx context.Context) {
	if c.caps.AckWait <= 0 {
		return
	}
	third := max(c.caps.AckWait/3, time.Millisecond)
	for failing := false; attempt.Sleep(ctx, third/2); {
		failed := c.extend(ctx, third)
		if failed != nil && !failing {
			c.cfg.Logger.Warn("the broker gives no more time; messages may be redelivered", "consumer", c.cfg.Name, "error", failed)
		}
		failing = failed != nil
	}
}

// extend extends the wait for the messages whose last extension is older than half of within, for as long as within. It takes up
// those that it did not reach the next time, and returns an error of the broker.
func (c *Consumer[Tx]) extend(ctx context.Context, within time.Duration) (failed error) {
	now := time.Now()
	var old []*item
	c.mu.Lock()
	for it := range c.inMemory {
		if now.Sub(it.extended) >= within/2 {
			old = append(old, it)
		}
	}
	c.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for _, it := range old {
		err := it.delivery.Extend(bounded)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			failed = err
		}
		if bounded.Err() != nil {
			return failed
		}
		c.mu.Lock()
		it.extended = now
		c.mu.Unlock()
	}
	return failed
}
