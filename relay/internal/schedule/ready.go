package schedule

import "container/heap"

// readyQueue is the work that can start, oldest first: messages without a key, and queues that are not running (ordered by
// their first message, which stays in its queue). New work arrives in order; work that returns, a queue with more messages or
// a message that was not attempted, is older and waits in a heap. Oldest first keeps the done prefix long, and nothing
// starves.
type readyQueue[M any] struct {
	units []unit[M] // new work, in order: units[head:]
	head  int
	back  unitHeap[M]
}

// unit is either a keyless message or a queue.
type unit[M any] struct {
	item  *Item[M]
	queue *queue[M]
}

// front is the unit's first message.
func (u unit[M]) front() *Item[M] {
	if u.item != nil {
		return u.item
	}
	return u.queue.head
}

func (u unit[M]) partition() *Partition[M] {
	if u.item != nil {
		return u.item.partition
	}
	return u.queue.partition
}

func (q *readyQueue[M]) len() int { return len(q.units) - q.head + len(q.back) }

func (q *readyQueue[M]) push(u unit[M]) {
	if n := len(q.units); n > q.head && q.units[n-1].front().order > u.front().order {
		heap.Push(&q.back, ranked[M]{u, u.front().order})
		return
	}
	if q.head > 64 && q.head*2 >= len(q.units) {
		n := copy(q.units, q.units[q.head:])
		clear(q.units[n:])
		q.units, q.head = q.units[:n], 0
	}
	q.units = append(q.units, u)
}

func (q *readyQueue[M]) pop() unit[M] {
	if len(q.back) > 0 && (q.head == len(q.units) || q.back[0].order < q.units[q.head].front().order) {
		return heap.Pop(&q.back).(ranked[M]).unit
	}
	u := q.units[q.head]
	q.units[q.head] = unit[M]{}
	q.head++
	if q.head == len(q.units) {
		q.units, q.head = q.units[:0], 0
	}
	return u
}

// without removes the work of a partition and returns its keyless messages.
func (q *readyQueue[M]) without(p *Partition[M]) []*Item[M] {
	var all readyQueue[M]
	var items []*Item[M]
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
func (q *readyQueue[M]) remove(kq *queue[M]) {
	var all readyQueue[M]
	for q.len() > 0 {
		if u := q.pop(); u.queue != kq {
			all.push(u)
		}
	}
	*q = all
}

// unitHeap is a heap of units, oldest first.
type unitHeap[M any] []ranked[M]

type ranked[M any] struct {
	unit[M]
	order uint64
}

func (h unitHeap[M]) Len() int           { return len(h) }
func (h unitHeap[M]) Less(i, j int) bool { return h[i].order < h[j].order }
func (h unitHeap[M]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *unitHeap[M]) Push(x any)        { *h = append(*h, x.(ranked[M])) }
func (h *unitHeap[M]) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = ranked[M]{}
	*h = (*h)[:last]
	return x
}

// ready makes the work of a unit ready: it can start.
func (s *Schedule[M]) ready(u unit[M]) { s.queueOf(u).push(u) }

// queueOf returns the ready queue that a unit belongs to by its first message.
func (s *Schedule[M]) queueOf(u unit[M]) *readyQueue[M] {
	if u.front().run != nil {
		return &s.readyParked
	}
	return &s.readyFresh
}

// Ready is the number of messages without a key and of queues that can start.
func (s *Schedule[M]) Ready() int { return s.readyFresh.len() + s.readyParked.len() }

// next removes and returns the unit whose turn it is. Fresh and parked messages have a ready queue each; when both have work
// they share by weight 2:1, so that neither a storm of retries nor a flood of fresh messages starves the other.
func (s *Schedule[M]) next() unit[M] {
	s.turn++
	if s.readyFresh.len() == 0 || (s.turn%3 == 0 && s.readyParked.len() > 0) {
		return s.readyParked.pop()
	}
	return s.readyFresh.pop()
}
