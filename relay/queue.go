package relay

import (
	"container/heap"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// item is one message in memory.
type item struct {
	msg *postrider.Message
	// key and seq are those of the message; a handler may change the message itself.
	key string
	seq int64
	// order numbers the items in the order in which they are taken into memory.
	order     uint64
	partition *partition
	queue     *keyQueue // nil for a message without a key
	next      *item     // after it in its queue or in a ready queue
	run       *run      // the unit of parked work it belongs to; nil for a message that was not parked
	ticket    uint64
	size      int
	budget    *budget
	attempts  int       // made before this delivery
	since     time.Time // when it was taken into memory
	started   time.Time
	// parked: the message is parked, either because it was read as a parked message or because it was parked while being worked
	// on. Otherwise its ticket must be settled.
	parked bool
	// foreign: the filter in effect takes the message's topic, but this process is not configured for it.
	foreign bool
	// err says why the stored row is not a message.
	err error
	// delay is the time left until its delivery when it was read; it is parked when it reaches the front of a transaction
	// queue.
	delay time.Duration
	// refused is why the last commit with this message alone did not take effect.
	refused error
	// parkedFor and reason are copied from the record.
	parkedFor time.Duration
	reason    store.ParkReason
}

// keyQueue is the queue of one key: its messages run one after another, in order. It is in its partition's map as long as it
// has messages. With HandleTx, a partition's transaction queue is one too.
type keyQueue struct {
	partition  *partition
	key        string
	head, tail *item
	waiting    int  // number of messages in the list
	running    bool // its first messages are out for delivery (and no longer in the list)
	out        int  // number of messages out
	// deaths counts dead letters of the queue that are not recorded yet. The messages queued after them wait for that: if those
	// were delivered first and the process died, the dead-lettered message would be tried again after them.
	deaths int

	// For a transaction queue only:

	// blocked: it waits for a settlement in progress.
	blocked bool
	// limit, if positive, is the maximum number of messages in the next transaction. late is how many of those out, counted
	// from the first, were committed late and can only be settled together.
	limit, late int
}

func (q *keyQueue) push(it *item) {
	q.waiting++
	it.next = nil
	if q.tail == nil {
		q.head = it
	} else {
		q.tail.next = it
	}
	q.tail = it
}

func (q *keyQueue) pushFront(it *item) {
	q.waiting++
	it.next = q.head
	q.head = it
	if q.tail == nil {
		q.tail = it
	}
}

func (q *keyQueue) pop() *item {
	q.waiting--
	it := q.head
	q.head = it.next
	if q.head == nil {
		q.tail = nil
	}
	it.next = nil
	return it
}

// readyQueue is the work that can start, oldest first: messages without a key, and queues that are not running (ordered by
// their first message, which stays in its queue). New work arrives in order; work that returns, a queue with more messages or
// a message that was not attempted, is older and waits in a heap. Oldest first keeps the settled prefix long, and nothing
// starves.
type readyQueue struct {
	units []unit // new work, in order: units[head:]
	head  int
	back  unitHeap
}

// unit is either a keyless message or a queue.
type unit struct {
	item  *item
	queue *keyQueue
}

// front is the unit's first message.
func (u unit) front() *item {
	if u.item != nil {
		return u.item
	}
	return u.queue.head
}

// partition of the unit.
func (u unit) partition() *partition {
	if u.item != nil {
		return u.item.partition
	}
	return u.queue.partition
}

func (q *readyQueue) len() int { return len(q.units) - q.head + len(q.back) }

func (q *readyQueue) push(u unit) {
	if n := len(q.units); n > q.head && q.units[n-1].front().order > u.front().order {
		heap.Push(&q.back, ranked{u, u.front().order})
		return
	}
	if q.head > 64 && q.head*2 >= len(q.units) {
		n := copy(q.units, q.units[q.head:])
		clear(q.units[n:])
		q.units, q.head = q.units[:n], 0
	}
	q.units = append(q.units, u)
}

func (q *readyQueue) pop() unit {
	if len(q.back) > 0 && (q.head == len(q.units) || q.back[0].order < q.units[q.head].front().order) {
		return heap.Pop(&q.back).(ranked).unit
	}
	u := q.units[q.head]
	q.units[q.head] = unit{}
	q.head++
	if q.head == len(q.units) {
		q.units, q.head = q.units[:0], 0
	}
	return u
}

// without removes the work of a partition and returns its keyless messages.
func (q *readyQueue) without(p *partition) []*item {
	var all readyQueue
	var items []*item
	for q.len() > 0 {
		switch u := q.pop(); {
		case u.partition() != p:
			all.push(u)
		case u.item != nil:
			items = append(items, u.item)
		}
	}
	*q = all
	return items
}

// remove removes a key queue.
func (q *readyQueue) remove(kq *keyQueue) {
	var all readyQueue
	for q.len() > 0 {
		if u := q.pop(); u.queue != kq {
			all.push(u)
		}
	}
	*q = all
}

// unitHeap is a heap of units, oldest first.
type unitHeap []ranked

type ranked struct {
	unit
	order uint64
}

func (h unitHeap) Len() int           { return len(h) }
func (h unitHeap) Less(i, j int) bool { return h[i].order < h[j].order }
func (h unitHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *unitHeap) Push(x any)        { *h = append(*h, x.(ranked)) }
func (h *unitHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = ranked{}
	*h = (*h)[:last]
	return x
}

// scheduler decides what starts next. Fresh and parked messages have a ready queue each; when both have work they share by
// weight 2:1, so that neither a storm of retries nor a flood of fresh messages starves the other.
type scheduler struct {
	fresh, parked readyQueue
	turn          int
}

func (s *scheduler) len() int { return s.fresh.len() + s.parked.len() }

// ready adds a unit to the ready queue that its first message belongs to.
func (s *scheduler) ready(u unit) {
	s.queueOf(u).push(u)
}

func (s *scheduler) queueOf(u unit) *readyQueue {
	if u.front().run != nil {
		return &s.parked
	}
	return &s.fresh
}

// remove removes a key queue from its ready queue.
func (s *scheduler) remove(q *keyQueue) {
	if q.head != nil {
		s.queueOf(unit{queue: q}).remove(q)
	}
}

// next removes and returns the unit whose turn it is.
func (s *scheduler) next() unit {
	s.turn++
	if s.fresh.len() == 0 || (s.turn%3 == 0 && s.parked.len() > 0) {
		return s.parked.pop()
	}
	return s.fresh.pop()
}
