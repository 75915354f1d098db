package relay

import (
	"context"
	"maps"
	"time"

	"github.com/postrider/postrider/store"
)

// partition is one partition that this process holds.
type partition struct {
	id int
	// token is the lease's; number is that of the last settlement known to be applied.
	token  string
	number int64
	// until is when the relay must have stopped delivering, on its own monotonic clock: the end of the lease, counted from
	// before it was requested, less a margin. ctx ends when the lease is lost.
	until  time.Time
	expiry *time.Timer
	ctx    context.Context
	end    context.CancelFunc
	// leaving: the partition is being handed over; nothing new starts. gone: the lease was released or lost.
	leaving, gone bool

	tracker tracker
	fetched store.Cursor // Next of the last batch
	more    bool         // the last fetch left messages unread
	reading bool         // a fetch is in progress
	// topics are the patterns of the filter in effect, none for all topics; elsewhere are those of other relays. unrouted are
	// messages that no relay takes and that the cursor has not passed.
	topics, elsewhere []string
	unrouted          []unrouted
	// unread are messages that the last owner parked beyond its cursor: they will be read again, and skipped. None are left
	// once the log has been read to its end.
	unread map[int64]struct{}
	queues map[string]*keyQueue
	// taken are the keys of the messages of the transaction queue that are in a transaction.
	taken map[string]struct{}
	held  map[string]*held
	// partial: keys may be held that are not in memory; the store knows them.
	partial bool
	// busy are messages that wait independently, parked (without a key, or delayed) or redriven, and that are in memory, or
	// whose outcome is not known here to be recorded: the store may have it already.
	busy map[int64]struct{}
	out  int // messages out for delivery
	// parked are messages that were read from the log and parked, by sequence, with their tickets, until the recorded cursor
	// passes them. early are those that became due before that, with their held keys.
	parked map[int64]uint64
	early  map[int64]string
	passed uint64 // the ticket after the recorded cursor
	// delivered is the ticket after the last delivered message that was not parked.
	delivered uint64
	withdrawn []*item // messages without a key that were waiting when the partition began to leave

	pending store.Settlement // outcomes since the last settlement
	count   int              // number of those outcomes
	moved   bool             // the cursor has moved since
	// recorded is the ticket up to which everything is recorded.
	recorded uint64
	// sending: a settlement is in progress, or waits to be repeated; then repeat holds it.
	sending     bool
	repeat      *sent
	outcomes    uint64 // number of outcomes so far; stored of them are recorded
	stored      uint64
	lastSettled time.Time
}

func (p *partition) ref() store.LeaseRef { return store.LeaseRef{Partition: p.id, Token: p.token} }

// held is a held key in memory.
type held struct {
	// unrecorded counts queued messages whose parking is not recorded yet; until it is, the key cannot be released.
	unrecorded int
	// blocks counts failures of the blocking message that are not recorded yet; while there are any, the store's state of the
	// key is out of date.
	blocks int
	// releasing: its release was requested and has not been answered.
	releasing bool
	// deciding: an operator's decision about the key must be applied once decideAfter outcomes of the partition are recorded:
	// those up to the end of the last work on the key. Until then no work on the key starts.
	deciding    bool
	decideAfter uint64
}

// busy reports whether the store's state of the key is out of date or must not be acted on.
func (h *held) busy() bool { return h.blocks > 0 || h.releasing || h.deciding }

// run is a unit of parked work in memory.
type run struct {
	key  string // the held key; "" for a message that waits independently
	left int    // messages not yet finished
}

func newPartition(parent context.Context, l store.Lease) *partition {
	p := &partition{
		id: l.Partition, token: l.Token, number: l.Settled, fetched: l.Cursor, more: true,
		queues: make(map[string]*keyQueue), held: make(map[string]*held), busy: make(map[int64]struct{}),
		parked: make(map[int64]uint64), early: make(map[int64]string),
	}
	p.tracker.base, p.tracker.passed, p.passed = 1, 1, 1 // 0 is the ticket of messages that were not read from the log
	if seqs := l.Parked.Sequences; len(seqs) > 0 {
		p.unread = make(map[int64]struct{}, len(seqs))
		for _, seq := range seqs {
			p.unread[seq] = struct{}{}
		}
	}
	p.tracker.cursor = l.Cursor
	p.ctx, p.end = context.WithCancel(parent)
	return p
}

// wasParked reports whether a message read from the log had been parked by the partition's last owner.
func (p *partition) wasParked(seq int64) bool {
	if len(p.unread) == 0 {
		return false
	}
	_, is := p.unread[seq]
	delete(p.unread, seq)
	return is
}

// park settles a message from the log that is parked or dead-lettered.
func (p *partition) park(it *item) {
	p.tracker.park(it.ticket)
	p.parked[it.seq] = it.ticket
}

// isEarly reports whether a parked message must not be delivered yet because the recorded cursor has not passed it. It is
// then left to a later poll, together with the key that it holds or waits for. If it were delivered and removed, and the
// database crashed with the cursor before it, it would be read from the log, delivered and counted again, without those
// messages of its key that are dead letters. With HandleTx its side effect would run twice: its transaction moves no cursor.
func (p *partition) isEarly(seq int64, key string) bool {
	if p.ahead(seq) {
		p.early[seq] = key
		return true
	}
	return false
}

func (p *partition) ahead(seq int64) bool {
	if _, unread := p.unread[seq]; unread {
		return true
	}
	_, is := p.parked[seq]
	return is
}

// pass records that the recorded cursor has reached a ticket. It removes the parked messages before it, and reports whether
// one that was due is among them.
func (p *partition) pass(ticket uint64) bool {
	if p.passed == ticket {
		return false
	}
	p.passed = ticket
	maps.DeleteFunc(p.parked, func(_ int64, t uint64) bool { return t < ticket })
	for seq := range p.early {
		if !p.ahead(seq) {
			return true
		}
	}
	return false
}

// works reports whether messages of a key are being worked on or wait in the queue of the key. Messages in the transaction
// queue count only while they are in a transaction.
func (p *partition) works(key string) bool {
	_, taken := p.taken[key]
	return taken || p.queues[key] != nil
}
