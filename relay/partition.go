package relay

import (
	"context"
	"maps"
	"time"
)

// partition is one partition that this process holds.
type partition struct {
	id int
	// token is that of the lease; number that of the last settlement known to be applied.
	token  string
	number int64
	// until is when the relay must have stopped delivering, on its own monotonic clock: the lease, counted from before it
	// was asked for, less a margin. ctx ends when the lease is lost.
	until  time.Time
	expiry *time.Timer
	ctx    context.Context
	end    context.CancelFunc
	// leaving: the partition is being handed over; nothing new starts. gone: the lease is given back or lost.
	leaving, gone bool

	tracker tracker
	fetched Cursor // Next of the last batch
	more    bool   // the last fetch left messages behind
	reading bool   // a fetch is under way
	// topics are the patterns of the filter in effect, none for all topics; elsewhere those of other relays. unrouted are messages that
	// no relay takes and that the cursor has not passed.
	topics, elsewhere []string
	unrouted          []unrouted
	// aside are messages that the last owner put aside beyond its cursor: they will be read again, and passed over. None are
	// left when the log has been read to its end.
	unread map[int64]struct{}
	queues map[string]*keyQueue
	// taken are the keys of the line's messages that are in a transaction.
	taken map[string]struct{}
	held  map[string]*held
	// partial: keys may be held that are not in memory. The store says which.
	partial bool
	// busy are messages that wait for themselves, parked (without a key, or delayed) or sent back, and are in memory, or whose
	// outcome is not recorded yet, as far as is known here: the store may have it already.
	busy map[int64]struct{}
	out  int // messages out for delivery
	// parked are messages that were read from the log and taken off the main line, by sequence, with their tickets, as long as
	// the recorded cursor has not passed them. early are those that were due in this time, with their held keys.
	parked map[int64]uint64
	early  map[int64]string
	passed uint64 // the ticket behind the recorded cursor
	// delivered is behind the last message of the main line that was delivered.
	delivered uint64
	withdrawn []*item // messages without a key that waited when the partition began to leave

	pending Settlement // outcomes since the last settlement
	count   int        // how many outcomes that is
	moved   bool       // the cursor moved since
	// recorded is the ticket up to which everything is recorded.
	recorded uint64
	// sending: a settlement is under way, or waits to be repeated; then it is repeat.
	sending     bool
	repeat      *sent
	outcomes    uint64 // how many there were; stored of them are recorded
	stored      uint64
	lastSettled time.Time
}

func (p *partition) ref() LeaseRef { return LeaseRef{Partition: p.id, Token: p.token} }

// held is a held key in memory.
type held struct {
	// unrecorded counts followers whose parking is not recorded yet; the key cannot be released before.
	unrecorded int
	// blocks counts failures of the head that are not recorded yet; while there are any, what the store says of the key is
	// out of date.
	blocks int
	// releasing: its release is asked for and not answered.
	releasing bool
	// deciding: an operator's decision about the key is to be applied, once decideAfter outcomes of the partition are recorded, those
	// that there were when the last work on the key ended. Nothing of the key starts until then.
	deciding    bool
	decideAfter uint64
}

// busy says whether what the store says of the key is out of date, or not to be acted upon.
func (h *held) busy() bool { return h.blocks > 0 || h.releasing || h.deciding }

// run is a piece of parked work in memory.
type run struct {
	key  string // the held key; "" for a message that waits for itself
	left int    // messages not yet finished
}

func newPartition(parent context.Context, l Lease) *partition {
	p := &partition{
		id: l.Partition, token: l.Token, number: l.Settled, fetched: l.Cursor, more: true,
		queues: make(map[string]*keyQueue), held: make(map[string]*held), busy: make(map[int64]struct{}),
		parked: make(map[int64]uint64), early: make(map[int64]string),
	}
	p.tracker.base, p.tracker.passed, p.passed = 1, 1, 1 // 0 is the ticket of what was not read from the log
	if aside := l.Parked.Sequences; len(aside) > 0 {
		p.unread = make(map[int64]struct{}, len(aside))
		for _, seq := range aside {
			p.unread[seq] = struct{}{}
		}
	}
	p.tracker.cursor = l.Cursor
	p.ctx, p.end = context.WithCancel(parent)
	return p
}

// wasParked reports whether a message read from the log was put aside by the partition's last owner.
func (p *partition) wasParked(seq int64) bool {
	if len(p.unread) == 0 {
		return false
	}
	_, is := p.unread[seq]
	delete(p.unread, seq)
	return is
}

// park settles a message of the log that is parked or has a dead letter.
func (p *partition) park(it *item) {
	p.tracker.park(it.ticket)
	p.parked[it.seq] = it.ticket
}

// isEarly says whether a parked message is not to be delivered yet, because the recorded cursor has not passed it; if so, it is
// left to a later look, with the key that it holds or waits for. Were it delivered and removed, and the database crashed with
// the cursor before it, it would be read from the log and delivered again, counted again, and without those of its key that are
// dead letters. With HandleTx it would have its effect twice: its transaction moves no cursor.
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

// pass notes that the recorded cursor stands at a ticket. It forgets parked messages before it, and reports whether one that
// was due is among them.
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

// works says whether messages of a key are in memory to be worked on, those of the line only while they are.
func (p *partition) works(key string) bool {
	_, taken := p.taken[key]
	return taken || p.queues[key] != nil
}
