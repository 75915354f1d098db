// Package schedule decides what a relay works on: which messages the next call may have, what their outcomes change, and what
// each settlement records. It is a state machine without a lock, a clock, goroutines or a store: times are arguments, and the
// caller makes one call at a time. A message goes through it like this:
//
//	Partition.Admit, AdmitRun, AdmitDue   it was read from the log, or its next attempt is due; it waits in a queue, or is parked
//	Schedule.Take                         it is called, after the messages of its key that precede it
//	Schedule.Complete                     its outcome is known: delivered, parked again, dead-lettered, or not attempted
//	Partition.NextSettlement, Confirm     its outcome is recorded, and the cursor passes it once everything before it is done
//	Partition.Lose                        or the lease was lost: everything in memory is dropped, and read again under the next one
//
// There are two disciplines. Messages of different keys are called in parallel, and those of one key one after another. With
// Config.Transactions, the fresh messages of a partition are called one after another instead, in transactions that also
// record their outcomes (see transactions.go).
package schedule

import "time"

// Config says how a schedule works. All fields are required, except as noted.
type Config struct {
	// Transactions selects the second discipline. TxBatch is the maximum number of fresh messages in one transaction, except
	// that messages that were committed late together stay together.
	Transactions bool
	TxBatch      int
	// TakeBytes bounds the bytes of the messages that one call gets; one message is always allowed.
	TakeBytes int
	// HoldOnDead holds a key whose message was dead-lettered until an operator decides. Optional.
	HoldOnDead bool
	// MaxHeld is the number of held keys above which idle ones are removed from memory; the caller looks them up. Unloading is called
	// the first time.
	MaxHeld   int
	Unloading func()
	// ParkAfter is the time after which slow work is parked, and LeaseTTL the time after which it is due again if this process
	// dies.
	ParkAfter, LeaseTTL time.Duration
	// SettleBatch: below this many unrecorded outcomes, only the first requests a settlement; from then on each does.
	SettleBatch int
	// Outlived holds the calls that have outlived their leases. Schedules share it that must not work on the same key at once.
	// Optional.
	Outlived Outlived
	// Fresh and Parked are the bounds of messages from the log and of parked messages in memory. They bind the caller, who
	// reads no more than there is room for.
	Fresh, Parked Budget
}

// Schedule is the work of all partitions that a process holds. M is what the caller keeps with a message; the schedule never
// looks at it.
type Schedule[M any] struct {
	// Fresh and Parked are the messages in memory.
	Fresh, Parked Budget
	// Wake says what the caller must do after an operation. The caller resets it.
	Wake Wake

	cfg        Config
	partitions map[int]*Partition[M]
	// readyFresh and readyParked are what can start.
	readyFresh, readyParked readyQueue[M]
	turn                    int
	order                   uint64 // of the message that was last taken into memory
	unsettled               int    // outcomes not yet recorded
	heldKeys                int    // in memory
	heldLimit               int    // the number of held keys in memory above which some are unloaded
	lookups                 map[*HeldLookup]struct{}
	uncertain               map[int]*uncertainCommit // by partition
	batches                 map[*Item[M]][]*Item[M]  // batches whose calls have not returned, by their first message
	outlived                Outlived                 // calls of leases that have ended
	awaiting                []awaiting[M]            // what starts when they have returned
}

// Wake is what has become possible.
type Wake struct {
	Settle bool // something waits for the next settlement
	Due    bool // a parked message can be read
	Left   bool // a partition that is being left has nothing in progress any more
}

// New returns an empty schedule.
func New[M any](cfg Config) *Schedule[M] {
	if cfg.Outlived == nil {
		cfg.Outlived = make(ownCalls)
	}
	return &Schedule[M]{
		cfg: cfg, Fresh: cfg.Fresh, Parked: cfg.Parked, heldLimit: cfg.MaxHeld,
		partitions: make(map[int]*Partition[M]), lookups: make(map[*HeldLookup]struct{}), uncertain: make(map[int]*uncertainCommit),
		batches: make(map[*Item[M]][]*Item[M]), outlived: cfg.Outlived,
	}
}

// InMemory is the number of messages in memory.
func (s *Schedule[M]) InMemory() int { return s.Fresh.Messages + s.Parked.Messages }

// Unsettled is the number of outcomes that are not recorded yet.
func (s *Schedule[M]) Unsettled() int { return s.unsettled }

// HeldKeys is the number of held keys in memory.
func (s *Schedule[M]) HeldKeys() int { return s.heldKeys }

// Calls is the number of calls that have not returned.
func (s *Schedule[M]) Calls() int { return len(s.batches) }

// CallsAfter is the number of them that began after a time, without those that are unfinished: they have passed everything that calls wait
// for.
func (s *Schedule[M]) CallsAfter(t time.Time) (n int) {
	for it := range s.batches {
		if !it.Unfinished && it.Started.After(t) {
			n++
		}
	}
	return n
}

// Take adds to batch, which is empty, messages for one call: up to room of them, from each queue as many of its first
// messages as fit. With transactions they are those of one transaction. It may find none although something is ready. If it
// finds that the lease of a partition has ended, it returns that too, for the caller to lose.
func (s *Schedule[M]) Take(batch []*Item[M], room int, now time.Time) (_ []*Item[M], ended *Partition[M]) {
	bytes := s.cfg.TakeBytes
	if s.cfg.Transactions {
		room = 1 // one parked message, or the next transaction
	}
	for len(batch) < room && s.Ready() > 0 && bytes > 0 {
		u := s.next()
		if p := u.partition(); !now.Before(p.Until) {
			if u.item != nil {
				u.item.drop()
			}
			ended = p
			break
		}
		if s.awaitsCall(u) {
			continue
		}
		first := len(batch)
		switch q := u.queue; {
		case q == nil:
			batch = append(batch, u.item)
		case q.partition.tx.is(q):
			batch = q.partition.tx.take(batch, now)
		default:
			batch = q.take(batch, room, bytes)
		}
		for _, it := range batch[first:] {
			bytes -= it.Size
		}
	}
	if len(batch) > 0 {
		for _, it := range batch {
			it.Started, it.Unfinished = now, false
			it.partition.out++
		}
		s.batches[batch[0]] = batch
	}
	return batch, ended
}

// take takes the first messages of a queue, at least one.
func (q *queue[M]) take(batch []*Item[M], room, bytes int) []*Item[M] {
	q.running = true
	for q.head != nil && len(batch) < room && (bytes > 0 || q.out == 0) {
		it := q.pop()
		q.out++
		bytes -= it.Size
		batch = append(batch, it)
	}
	return batch
}

// MoveLast puts a message after all others, for when it is not attempted.
func (s *Schedule[M]) MoveLast(it *Item[M]) {
	s.order++
	it.order = s.order
}

// enqueue adds an item to the queue in which it waits for its turn.
func (s *Schedule[M]) enqueue(it *Item[M]) {
	q := it.partition.queueFor(it)
	if q == nil {
		s.ready(unit[M]{item: it})
		return
	}
	it.queue = q
	idle := q.head == nil && !q.running && q.deaths == 0
	q.push(it)
	if idle {
		s.ready(unit[M]{queue: q})
	}
}

// queueFor returns the queue in which a message waits, nil for a message without a key. With transactions, messages from the log
// wait in the transaction queue, and so do those that were parked independently, since they take their turn among the messages
// of their key.
func (p *Partition[M]) queueFor(it *Item[M]) *queue[M] {
	switch {
	case p.tx != nil && (it.run == nil || it.run.key == "" && it.Key != ""):
		return &p.tx.queue
	case it.Key == "":
		return nil
	}
	q := p.queues[it.Key]
	if q == nil {
		q = &queue[M]{partition: p, key: it.Key}
		p.queues[it.Key] = q
	}
	return q
}

// allQueues yields the queues of the partition.
func (p *Partition[M]) allQueues(yield func(*queue[M]) bool) {
	if p.tx != nil && !yield(&p.tx.queue) {
		return
	}
	for _, q := range p.queues {
		if !yield(q) {
			return
		}
	}
}

// reopen makes a queue ready for its next messages, or removes it. A queue with an unrecorded dead letter stays as it is, and
// so does one of a partition that is being left, or with unfinished messages.
func (p *Partition[M]) reopen(q *queue[M]) {
	switch {
	case q == nil || q.running || q.deaths > 0 || p.leaving:
	case q.head == nil:
		delete(p.queues, q.key)
	case p.decides(q.key):
		p.unloadQueue(q)
	default:
		p.schedule.ready(unit[M]{queue: q})
	}
}

// requeue returns messages that were not attempted to the front of their queue, in order.
func (p *Partition[M]) requeue(q *queue[M], items []*Item[M]) {
	switch {
	case q != nil:
		for i := len(items) - 1; i >= 0; i-- {
			q.pushFront(items[i])
		}
	case p.leaving:
		p.withdrawn = append(p.withdrawn, items[0])
	default:
		p.schedule.ready(unit[M]{item: items[0]})
	}
}
