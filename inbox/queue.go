package inbox

import (
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// item is one message in memory.
type item struct {
	delivery *postrider.Delivery
	msg      *postrider.Message
	number   uint64 // in the order of receipt
	size     int
	queue    *queue
	session  *logSession // nil unless it was read from a log
	handed   *handedOver // nil unless it is from an outbox in another database
	failures []failure
	begun    time.Time // of the first attempt
	// fate, once decided, is what happens to the message instead of processing.
	fate *fate
	// ahead: it is tried or dead-lettered before the parked messages of its key, since by its version it precedes them.
	ahead bool
	// refusals counts how often the database has refused to store msg. standsIn: msg is a stand-in for a message that it
	// refused.
	refusals int
	standsIn bool
	// alone: the message gets its own transaction, because a shared one failed.
	alone bool
	// stays: the database has refused to park it, or one after it, because its key is slow.
	stays    bool
	extended time.Time // when its broker's wait was last restarted
}

// failure is a failed attempt.
type failure struct {
	at    time.Time
	cause string
}

// attempts returns the failures so far, relative to now.
func (it *item) attempts(now time.Time) []store.FailedAttempt {
	out := make([]store.FailedAttempt, len(it.failures))
	for i, f := range it.failures {
		out[i] = store.FailedAttempt{Ago: now.Sub(f.at), Cause: f.cause}
	}
	return out
}

// lost says whether this process has lost the right to work on the message.
func (it *item) lost() bool {
	select {
	case <-it.delivery.Lost():
		return true
	default:
		return false
	}
}

// dropped says whether the message, which was not started, must not be.
func (it *item) dropped() bool { return it.session != nil && it.session.dropped() || it.lost() }

// queue is a queue of messages that run one after another, in order. It holds the messages of one key, or the
// deliveries of one message without a key. It exists as long as it has messages or runs.
type queue struct {
	name  string
	items []*item
	// busy: its first messages are running, or it waits for a retry.
	busy bool
	// For parkSlow. run has its first messages, if they have been running for a while. slow: its messages are to be parked; parking: that
	// has begun. until is the number of a message that it has to get past.
	run           *run
	slow, parking bool
	until         uint64
}

// keyPrefix precedes a key in the name of its queue.
const keyPrefix = "key "

// queueOf returns the name of a message's queue.
func queueOf(m *postrider.Message) string {
	if m.Key != "" {
		return keyPrefix + m.Key
	}
	return "id " + m.ID
}

// enqueue adds a message to memory and to its queue.
func (c *Consumer[Tx]) enqueue(it *item, name string) {
	c.received++
	c.sized += int64(it.size)
	c.stats.Received++
	it.number = c.received
	c.inMemory[it] = struct{}{}
	c.bytes += it.size
	q := c.queues[name]
	if q == nil {
		q = &queue{name: name}
		c.queues[name] = q
	}
	it.queue = q
	q.items = append(q.items, it)
	if !q.busy && len(q.items) == 1 {
		c.ready = append(c.ready, q)
	}
}

// drop removes a message that is settled or lost.
func (c *Consumer[Tx]) drop(it *item) {
	delete(c.inMemory, it)
	c.bytes -= it.size
	if c.hasRoom() {
		c.room.Signal()
	}
}

// worker runs transactions until the consumer stops.
func (c *Consumer[Tx]) worker() {
	for {
		batch, running := c.take()
		if len(batch) == 0 {
			return
		}
		end := c.counts(running)
		c.process(batch)
		end()
		if session := batch[0].session; session != nil {
			session.end()
		}
	}
}

// take waits for work and returns as much as one transaction may have, and as how many running messages it counts. It returns nothing when
// the consumer stops.
func (c *Consumer[Tx]) take() (batch []*item, running int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.life.Err() == nil {
		if batch := c.fill(c.mayStart()); len(batch) > 0 {
			running = len(batch)
			if batch[0].queue.parking {
				running = 1 // no handler runs
			}
			c.running += running
			if len(c.ready) > 0 {
				c.work.Signal() // each wakes one more worker while there is work
			}
			return batch, running
		}
		c.idle++
		c.work.Wait()
		c.idle--
	}
	return nil, 0
}

// keysAtOnce is how many queues may share a transaction. The messages of a transaction run one after another, so slow ones leave the
// other workers their share.
func (c *Consumer[Tx]) keysAtOnce() int {
	if c.size.slow.Load() {
		return (len(c.ready) + c.cfg.Concurrency - 1) / c.cfg.Concurrency
	}
	return len(c.ready)
}

// fill takes up to limit messages from the ready queues.
func (c *Consumer[Tx]) fill(limit int) []*item {
	var batch []*item
	left := c.keysAtOnce()
	for next := 0; len(batch) < limit && left > 0 && next < len(c.ready); {
		q := c.ready[next]
		c.discardLost(q)
		if len(q.items) == 0 {
			c.unready(next)
			delete(c.queues, q.name)
			continue
		}
		if len(batch) > 0 && q.items[0].session != batch[0].session {
			next++ // it has another lease
			continue
		}
		most := limit
		if q.slow {
			if len(batch) > 0 {
				next++ // it does not wait for handlers
				continue
			}
			most = parkAtOnce
		}
		n := c.share(q, batch, most)
		if n == 0 {
			break // it needs its own transaction
		}
		if n = begun(q.items[:n]); n == 0 {
			continue // it was lost just now
		}
		c.unready(next)
		left--
		batch = append(batch, q.items[:n]...)
		q.items, q.busy = slices.Clone(q.items[n:]), true
		if q.slow {
			c.startParking(batch)
			break
		}
		if batch[0].alone {
			break
		}
	}
	if len(batch) > 0 && batch[0].session != nil {
		batch[0].session.begin()
	}
	return batch
}

// begun records that the consumer works on messages, and returns on how many of them; those from one on may have been lost just now.
func begun(items []*item) int {
	for i, it := range items {
		if it.handed != nil && !it.handed.begin(time.Now()) {
			return i
		}
	}
	return len(items)
}

// unready removes a ready queue, usually the first.
func (c *Consumer[Tx]) unready(i int) {
	if i == 0 {
		c.ready = c.ready[1:]
		return
	}
	c.ready = slices.Delete(c.ready, i, i+1)
}

// share says how many of a queue's first messages fit into a batch of up to limit messages.
func (c *Consumer[Tx]) share(q *queue, batch []*item, limit int) int {
	first := q.items[0]
	if first.alone {
		if len(batch) > 0 {
			return 0
		}
		return 1
	}
	n := 1
	for n < len(q.items) && len(batch)+n < limit && !q.items[n].alone && first.session == q.items[n].session {
		n++
	}
	return n
}

// discardLost drops messages that this process has lost. They are redelivered, and so are all messages after them: when a
// message of an ordered source is seen to be lost, those after it are lost as well, so that nothing overtakes it.
func (c *Consumer[Tx]) discardLost(q *queue) {
	q.items = slices.DeleteFunc(q.items, func(it *item) bool {
		if !it.dropped() {
			return false
		}
		c.drop(it)
		c.stats.Lost++
		c.changed.Broadcast()
		return true
	})
}

// requeue returns unsettled messages to the front of their queues, in order, and makes all queues of a batch ready, after
// a wait if it is positive. The messages of one queue are adjacent in the batch. It wakes no worker for queues that are
// ready at once: the calling worker takes them itself.
func (c *Consumer[Tx]) requeue(batch, unsettled []*item, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, it := range slices.Backward(unsettled) {
		if it.handed != nil {
			it.handed.putBack()
		}
		it.queue.items = slices.Insert(it.queue.items, 0, it)
	}
	for i, it := range batch {
		if i > 0 && batch[i-1].queue == it.queue {
			continue
		}
		if wait <= 0 || len(it.queue.items) == 0 {
			c.release(it.queue)
			continue
		}
		time.AfterFunc(wait, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.release(it.queue)
			c.work.Signal()
		})
	}
	c.changed.Broadcast()
}

// release makes a queue ready for its next messages, or removes it if it is empty.
func (c *Consumer[Tx]) release(q *queue) {
	q.busy = false
	if len(q.items) == 0 {
		delete(c.queues, q.name)
		return
	}
	c.ready = append(c.ready, q)
}

// unbegun returns the queued messages that were not started, in the order of receipt.
func (c *Consumer[Tx]) unbegun() []*item {
	var out []*item
	for _, q := range c.queues {
		out = append(out, q.items...)
	}
	slices.SortFunc(out, func(a, b *item) int { return int(a.number) - int(b.number) })
	return out
}
