package relay

import (
	"time"

	"github.com/postrider/postrider"
)

// item is one message in memory.
type item struct {
	msg       *postrider.Message
	partition *partition
	lane      *lane // nil for a message without a key
	next      *item // behind it in its lane, or in a ready queue
	run       *run  // the piece of parked work that it belongs to; nil for a message of the main line
	ticket    uint64
	size      int
	attempts  int // made before this delivery
	started   time.Time
	// parked: the message stands among the parked ones, either because it came from there or because it was put there while
	// it is being worked on. Otherwise its ticket is to be settled.
	parked bool
	// err says why the stored row is not a message.
	err error
	// parkedFor and reason are those of the record.
	parkedFor time.Duration
	reason    ParkReason
}

// lane is the queue of one key: its messages run one after another, in order. It is in its partition's map as long as it
// has messages.
type lane struct {
	partition  *partition
	key        string
	head, tail *item
	running    bool // its foremost messages are out for delivery (and no longer in the list)
	out        int  // how many
	// deaths counts dead letters of the lane that are not recorded yet. Its followers wait for that: were they delivered
	// before and the process died, the dead message would be tried again behind them.
	deaths int
}

func (l *lane) push(it *item) {
	it.next = nil
	if l.tail == nil {
		l.head = it
	} else {
		l.tail.next = it
	}
	l.tail = it
}

func (l *lane) pushFront(it *item) {
	it.next = l.head
	l.head = it
	if l.tail == nil {
		l.tail = it
	}
}

func (l *lane) pop() *item {
	it := l.head
	l.head = it.next
	if l.head == nil {
		l.tail = nil
	}
	it.next = nil
	return it
}

// queue is a queue of work that can start: messages without a key, and lanes that are not running (by their head, which
// stays in its lane).
type queue struct {
	units []unit
	head  int
}

// unit is either a keyless message or a lane.
type unit struct {
	item *item
	lane *lane
}

func (q *queue) len() int { return len(q.units) - q.head }

func (q *queue) push(u unit) {
	if q.head > 64 && q.head*2 >= len(q.units) {
		n := copy(q.units, q.units[q.head:])
		clear(q.units[n:])
		q.units, q.head = q.units[:n], 0
	}
	q.units = append(q.units, u)
}

func (q *queue) pushFront(u unit) {
	if q.head == 0 {
		q.units = append(q.units, unit{})
		copy(q.units[1:], q.units)
		q.units[0] = u
		return
	}
	q.head--
	q.units[q.head] = u
}

func (q *queue) pop() unit {
	u := q.units[q.head]
	q.units[q.head] = unit{}
	q.head++
	if q.head == len(q.units) {
		q.units, q.head = q.units[:0], 0
	}
	return u
}

// scheduler decides what starts next. Fresh messages and parked ones have a queue each; when both have work they share by
// weight 2:1, so that neither a storm of retries nor a flood of fresh messages starves the other.
type scheduler struct {
	fresh, parked queue
	turn          int
}

func (s *scheduler) len() int { return s.fresh.len() + s.parked.len() }

// ready puts a lane or keyless message in the queue that its foremost message belongs to.
func (s *scheduler) ready(u unit) {
	s.queueOf(u).push(u)
}

func (s *scheduler) queueOf(u unit) *queue {
	it := u.item
	if it == nil {
		it = u.lane.head
	}
	if it.run != nil {
		return &s.parked
	}
	return &s.fresh
}

// next takes the unit whose turn it is.
func (s *scheduler) next() unit {
	s.turn++
	if s.fresh.len() == 0 || (s.turn%3 == 0 && s.parked.len() > 0) {
		return s.parked.pop()
	}
	return s.fresh.pop()
}

// without takes the work of a partition out of a queue and returns its keyless messages.
func (q *queue) without(p *partition) []*item {
	var items []*item
	kept := q.units[:q.head]
	for _, u := range q.units[q.head:] {
		switch {
		case u.partition() != p:
			kept = append(kept, u)
		case u.item != nil:
			items = append(items, u.item)
		}
	}
	clear(q.units[len(kept):])
	q.units = kept
	return items
}
