package schedule

import "time"

// Item is one message in memory. The caller sets the exported fields, except Started, Refused, NotDue and DueIn; Message is
// whatever it keeps with the item, and is cleared when the item is dropped.
type Item[M any] struct {
	Message  M
	Key      string // "" for a message without a key
	Sequence int64
	Size     int
	Attempts int           // made before this delivery
	Delay    time.Duration // the time left until its delivery when it was read
	Started  time.Time     // when it was last taken
	// Refused is why the last commit with this message alone did not take effect.
	Refused error
	// NotDue: the message is not called; the transaction that it was taken into parks it, to be due DueIn from then on.
	NotDue bool
	DueIn  time.Duration
	// Unfinished: its call is about to return, but the message is still being worked on; see Schedule.Complete.
	Unfinished bool

	partition *Partition[M]
	queue     *queue[M] // nil for a message without a key
	next      *Item[M]  // after it in its queue
	run       *run      // nil unless it is parked
	budget    *Budget
	ticket    uint64
	order     uint64    // numbers the items in the order in which they are taken into memory
	since     time.Time // when it was taken into memory
	// parked: the message is parked, either because it was read as a parked message or because it was parked while being worked
	// on. Otherwise its ticket must be marked as done.
	parked bool
}

// run is what was read at once of the parked messages: the first ones of a held key, or, as a run of its own, one that waits independently.
// A message that is parked while being worked on is a run too.
type run struct {
	key  string // the held key; "" for a message that waits independently
	left int    // messages not yet finished
}

// SameQueue reports whether two messages wait in the same queue, so that the second is called after the first.
func SameQueue[M any](a, b *Item[M]) bool { return a.queue != nil && a.queue == b.queue }

// holdsUp reports whether fresh messages of the same key may be queued after the message, which continue if all are parked: it is
// a fresh message itself, or it was parked independently (delayed, or redriven by an operator) and does not hold its key. With
// transactions, a partition waits for its slowest message.
func (it *Item[M]) holdsUp() bool {
	return it.partition.tx == nil && (!it.parked || it.queue != nil && it.run.key == "")
}

// queue is the queue of one key: its messages run one after another, in order. It is in its partition's map as long as messages wait, are
// out, or have an unrecorded dead letter.
type queue[M any] struct {
	partition  *Partition[M]
	key        string // "" for a transaction queue
	head, tail *Item[M]
	waiting    int  // number of messages in the list
	running    bool // its first messages are out for delivery (and no longer in the list), or it waits for a call or a settlement
	out        int  // number of messages out
	// deaths counts dead letters of the queue that are not recorded yet. The messages queued after them wait for that: if those
	// were delivered first and the process died, the dead-lettered message would be tried again after them.
	deaths int
}

func (q *queue[M]) push(it *Item[M]) {
	q.waiting++
	it.next = nil
	if q.tail == nil {
		q.head = it
	} else {
		q.tail.next = it
	}
	q.tail = it
}

func (q *queue[M]) pushFront(it *Item[M]) {
	q.waiting++
	it.next = q.head
	q.head = it
	if q.tail == nil {
		q.tail = it
	}
}

func (q *queue[M]) pop() *Item[M] {
	q.waiting--
	it := q.head
	q.head = it.next
	if q.head == nil {
		q.tail = nil
	}
	it.next = nil
	return it
}

// has reports whether a message that waits satisfies a condition.
func (q *queue[M]) has(condition func(*Item[M]) bool) bool {
	for it := q.head; it != nil; it = it.next {
		if condition(it) {
			return true
		}
	}
	return false
}

// Budget is how much memory messages of one kind, fresh or parked, may use and do use. Each kind has its own, so that a storm
// of retries leaves room for fresh messages, and vice versa.
type Budget struct {
	Messages, Bytes       int
	MaxMessages, MaxBytes int
}

// WorthReading is how much room, in messages, makes another read worthwhile: a quarter, so that the relay keeps reading while
// three quarters are in memory, but not for a few messages at a time.
func (b *Budget) WorthReading() int { return max(b.MaxMessages/4, 1) }

// load accounts for an item that is taken into memory, drop for one that leaves it.
func (p *Partition[M]) load(it *Item[M], b *Budget, now time.Time) {
	s := p.schedule
	s.order++
	it.partition, it.order, it.since, it.budget = p, s.order, now, b
	b.Messages++
	b.Bytes += it.Size
}

func (it *Item[M]) drop() {
	it.budget.Messages--
	it.budget.Bytes -= it.Size
	var none M
	it.Message = none
}
