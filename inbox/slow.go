package inbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/store"
)

// The messages of a slow key fill the memory, and then nothing of other keys is read. So they are parked: once the key's message that runs
// has ended, or its transaction has been interrupted, all of the key that is in memory is parked as if its first message had failed, and the
// relay for parked messages goes on with it. Nothing else is different: a parked message is claimed, its key is held, and what arrives
// after it is parked after it.
//
// The message that runs cannot be parked while it runs, as a relay does: its claim is in the transaction of its handler. Without a claim, a
// redelivered copy would be parked after the messages that follow it. And those alone cannot be parked either: they would be due before the
// message that they follow.

// run is the processing of a batch.
type run struct {
	batch       []*item // the messages of a queue are adjacent
	ctx         context.Context
	stop        context.CancelFunc
	late        *time.Timer
	interrupted atomic.Bool // the batch has kept others waiting for too long
	// Consumer.mu protects these. began is set when the batch takes longer than watchAfter.
	began time.Time
	ended bool
}

// shared reports whether messages of several queues run one after another.
func (r *run) shared() bool { return r.batch[0].queue != r.batch[len(r.batch)-1].queue }

func (r *run) interrupt() {
	r.interrupted.Store(true)
	r.stop()
}

// watch tells the queues of a batch that it runs.
func (c *Consumer[Tx]) watch(r *run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.ended {
		return
	}
	r.began = time.Now()
	for _, it := range r.batch {
		it.queue.run = r
	}
}

// unwatch ends what watch began, or is about to begin.
func (c *Consumer[Tx]) unwatch(r *run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.ended = true
	for _, it := range r.batch {
		it.queue.run = nil
	}
}

// slowLoop looks for slow keys.
func (c *Consumer[Tx]) slowLoop(ctx context.Context) {
	for attempt.Sleep(ctx, c.cfg.ParkAfter) {
		c.parkSlow(time.Now())
	}
}

// parkSlow parks the messages of slow keys. A key is slow if it has much in memory, and still has some of that, up to a quarter of what
// the memory takes, when ParkAfter is over; so others are read at that pace at least. If the database or a gate stops everything, no key
// is slow. Nor if all workers have something to do: then the handlers are, and reading on does not help. One key that has most of the
// memory leaves nothing to do for others, however few workers there are. One message that has most of the memory keeps nothing else back
// unless nothing is read. A transaction of several keys that takes long is interrupted if nothing is read, so that those that do not take
// long go on.
func (c *Consumer[Tx]) parkSlow(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stopped := c.life.Err() != nil || c.storeFails > 0 || c.closed()
	full := !stopped && c.idle > 0 && !c.hasRoom()
	for _, q := range c.queues {
		if q.busy {
			c.discardLost(q) // fill does it only when the queue is ready again
		}
		if full && q.run != nil && q.run.shared() && now.Sub(q.run.began) >= c.cfg.ParkAfter {
			q.run.interrupt() // its keys may have little each, and much together
		}
		open := c.open(q)
		switch {
		case stopped || !c.tooMuch(open):
			q.until = 0
		case q.until == 0 || open[0].number > q.until:
			q.until = open[min(len(open), max(c.cfg.MaxInFlight/4, 1))-1].number
		default:
			c.parkQueue(q, len(open), now)
		}
	}
}

// tooMuch reports whether the messages of a queue take so much of the memory that they are not left in it for long.
func (c *Consumer[Tx]) tooMuch(open []*item) bool {
	parts := c.parts()
	if len(open) < 2 || c.idle == 0 {
		parts = 2
	}
	return c.much(open, parts) && (len(open) > 1 || len(open) == 1 && !c.hasRoom()) && !slices.ContainsFunc(open, func(it *item) bool { return it.stays })
}

// open returns the messages of a queue that are not settled, in order.
func (c *Consumer[Tx]) open(q *queue) []*item {
	if q.run == nil {
		return q.items
	}
	var out []*item
	for _, it := range q.run.batch {
		if _, unsettled := c.inMemory[it]; unsettled && it.queue == q {
			out = append(out, it)
		}
	}
	return append(out, q.items...)
}

// parts says into how many parts the memory is divided, of which a slow key has one at least: so many that keys that all workers but one are
// busy with cannot fill three quarters of it, after which nothing is read, without one of them being slow.
func (c *Consumer[Tx]) parts() int { return max(c.cfg.Concurrency*4/3+1, 16) }

// fewest is how many messages are not much, in a memory for many.
const fewest = 16

// much reports whether messages take at least one of so many parts of the memory.
func (c *Consumer[Tx]) much(items []*item, parts int) bool {
	if most := c.cfg.MaxInFlight; len(items) >= max(most/parts, min(fewest, most/2)) {
		return true
	}
	bytes := 0
	for _, it := range items {
		bytes += it.size
	}
	return bytes >= c.cfg.MaxInFlightBytes/parts
}

// parkQueue lets a queue be parked as soon as it does not run, and interrupts what has run for too long. Which message of several keys
// takes so long is not known: each is then tried alone first.
func (c *Consumer[Tx]) parkQueue(q *queue, n int, now time.Time) {
	if q.parking {
		return
	}
	if r := q.run; r != nil && now.Sub(r.began) >= c.cfg.ParkAfter {
		r.interrupt()
		if r.shared() {
			return
		}
	}
	if !q.slow {
		q.slow = true
		c.cfg.Logger.Info("a key is slow: its messages are parked, so that those of other keys can be read", "consumer", c.cfg.Name,
			"key", strings.TrimPrefix(q.name, keyPrefix), "messages", n)
	}
}

// parkAtOnce is how many messages of a slow key a worker takes at once.
const parkAtOnce = 1_000

// startParking says of messages of a slow key that they are parked.
func (c *Consumer[Tx]) startParking(batch []*item) {
	batch[0].queue.parking = true
	cause := fmt.Sprintf("messages of this key waited in memory for more than %s", c.cfg.ParkAfter)
	for _, it := range batch {
		if it.fate == nil {
			it.fate = &fate{park: store.ParkSlow, cause: cause}
		}
	}
}

// unpark lets the handler run on the messages of a slow key after all, since the database refuses to park one of those that were parked now.
// They have not failed. It reports whether they were to be parked.
func (c *Consumer[Tx]) unpark(now, left []*item) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := left[0].queue
	if !q.parking || !slices.ContainsFunc(now, (*item).ofSlowKey) {
		return false
	}
	q.slow, q.parking, q.until = false, false, 0
	for _, it := range now {
		it.stays = true
	}
	for _, it := range slices.Concat(left, q.items) {
		if it.ofSlowKey() {
			it.fate = nil
		}
	}
	return true
}

// ofSlowKey reports whether the message is to be parked because its key is slow.
func (it *item) ofSlowKey() bool { return it.fate != nil && it.fate.park == store.ParkSlow }
