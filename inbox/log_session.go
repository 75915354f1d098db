package inbox

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// logSession is what this process has read of a partition of a log under one lease, from a position on. When the lease is lost,
// or the log turns out to be another one, the session is lost with everything in memory.
type logSession struct {
	lease store.LeaseRef
	part  postrider.LogPartition // its state when the session began. In another Term, what was read may have been replaced unnoticed
	lost  chan struct{}

	mu       sync.Mutex
	ended    bool
	retiring bool // starts nothing more
	running  int  // transactions
	idle     chan struct{}
	open     []*logEntry        // in the order of offsets; the first is not settled
	room     chan struct{}      // not nil while wait waits
	at, head postrider.Position // everything up to at is settled; head was read last
	gaps     []logGap           // since the last look at the log
}

// logGap is a range of offsets that the log did not have when it was read.
type logGap struct{ from, to int64 }

// logEntry is a message of a log in memory. It is the Settler of its delivery: the broker needs no acknowledgement.
type logEntry struct {
	session *logSession
	at      postrider.Position
	read    time.Time
	settled bool
}

var _ postrider.Settler = (*logEntry)(nil)

func newLogSession(lease store.LeaseRef, part postrider.LogPartition, at postrider.Position) *logSession {
	return &logSession{lease: lease, part: part, lost: make(chan struct{}), at: at, head: at}
}

// maxGaps is how many gaps are kept apart; more count as one.
const maxGaps = 1_000

// admit adds messages that were read, and makes the session their settler. It returns them without the deliveries that have nothing
// to process.
func (s *logSession) admit(deliveries []*postrider.Delivery) []*postrider.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, empty := time.Now(), false
	for _, d := range deliveries {
		at := d.Position
		if !s.part.Sparse {
			s.gap(at.Offset - 1)
		}
		e := &logEntry{session: s, at: at, read: now, settled: nothing(d)}
		d.Settler, empty = e, empty || e.settled
		s.open, s.head = append(s.open, e), at
	}
	if !empty {
		return deliveries
	}
	s.advance()
	return slices.DeleteFunc(deliveries, nothing)
}

// nothing reports whether a delivery only says that there is nothing up to its position.
func nothing(d *postrider.Delivery) bool { return d.Message == nil && d.Err == nil }

// gap notes that the log has nothing from what was read last to an offset. It needs s.mu.
func (s *logSession) gap(to int64) {
	from := s.head.Offset + 1
	if from > to {
		return
	}
	if n := len(s.gaps); n < maxGaps {
		s.gaps = append(s.gaps, logGap{from, to})
	} else {
		s.gaps[n-1].to = to
	}
}

// skip moves on to the first message that a sparse log still has, and reports whether there may have been others. In other logs,
// the offsets tell.
func (s *logSession) skip(now postrider.LogPartition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := now.First - 1
	if !now.Sparse || to <= s.head.Offset {
		return false
	}
	s.gap(to)
	s.head = postrider.Position{Incarnation: s.head.Incarnation, Partition: s.head.Partition, Offset: to}
	return true
}

// progress returns up to where everything is settled, what was read last, and for how long messages beyond the former may have
// been processed.
func (s *logSession) progress() (at, head postrider.Position, open time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) > 0 {
		open = time.Since(s.open[0].read)
	}
	return s.at, s.head, open
}

// removed returns the offsets below first that the log did not have when it was read, and removes all gaps.
func (s *logSession) removed(first int64) (gaps []logGap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.gaps {
		if g.from < first {
			gaps = append(gaps, logGap{g.from, min(g.to, first-1)})
		}
	}
	s.gaps = nil
	return gaps
}

// lose ends the session: nothing of it is committed any more, except what is being committed under a lease that holds.
func (s *logSession) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended = true
		close(s.lost)
	}
}

// dropped reports whether messages of the session that were not started must not be.
func (s *logSession) dropped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended || s.retiring
}

// begin and end surround each transaction.
func (s *logSession) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running++
}

func (s *logSession) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running--; s.running == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// retire starts nothing more, and waits for the transactions under way until ctx ends.
func (s *logSession) retire(ctx context.Context) {
	s.mu.Lock()
	s.retiring = true
	idle := s.idle
	if s.running > 0 && idle == nil {
		idle = make(chan struct{})
		s.idle = idle
	}
	s.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// Ack implements postrider.Settler.
func (e *logEntry) Ack(context.Context) error {
	s := e.session
	s.mu.Lock()
	defer s.mu.Unlock()
	e.settled = true
	s.advance()
	return nil
}

// advance moves at over what is settled. It needs s.mu.
func (s *logSession) advance() {
	for len(s.open) > 0 && s.open[0].settled {
		s.at = s.open[0].at
		s.open[0] = nil
		s.open = s.open[1:]
		if s.room != nil {
			close(s.room)
			s.room = nil
		}
	}
}

// wait waits until there are fewer than most messages from the first that is not settled on, or ctx ends.
func (s *logSession) wait(ctx context.Context, most int) {
	for ctx.Err() == nil {
		s.mu.Lock()
		if len(s.open) < most {
			s.mu.Unlock()
			return
		}
		if s.room == nil {
			s.room = make(chan struct{})
		}
		room := s.room
		s.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
		}
	}
}

// Reject implements postrider.Settler.
func (e *logEntry) Reject(ctx context.Context, _ string) error { return e.Ack(ctx) }

// Nack implements postrider.Settler: the message is read again from the position.
func (e *logEntry) Nack(context.Context, time.Duration) error { return nil }

// Extend implements postrider.Settler: a log waits as long as the lease holds.
func (e *logEntry) Extend(context.Context) error { return nil }

// Lost implements postrider.Settler.
func (e *logEntry) Lost() <-chan struct{} { return e.session.lost }
