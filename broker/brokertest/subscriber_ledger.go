package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
)

// ledger records what happened to a group and its messages.
type ledger struct {
	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when a message is worked on
	messages map[string]*record
	last     map[string]int64              // by key: the highest number that was worked on
	held     map[string]map[*delivery]bool // by key: deliveries that members have not begun to settle
}

// record records what happened to a message in a group.
type record struct {
	position   postrider.Position
	seen       bool
	counted    bool      // the broker must know that it was delivered
	deliveries int       // according to the broker
	settled    *delivery // the delivery that settled it; it must not be redelivered
	excused    bool      // it may be redelivered, because a settlement failed or was late
	applied    int       // how often it was worked on
}

func (s *inbound) ledger(group string) *ledger {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.groups[group]
	if l == nil {
		l = &ledger{
			changed: make(chan struct{}), messages: make(map[string]*record), last: make(map[string]int64),
			held: make(map[string]map[*delivery]bool),
		}
		s.groups[group] = l
	}
	return l
}

func (l *ledger) record(id string) *record {
	r := l.messages[id]
	if r == nil {
		r = &record{}
		l.messages[id] = r
	}
	return r
}

// heldOf returns the held deliveries of a key. It needs mu.
func (l *ledger) heldOf(key string) map[*delivery]bool {
	held := l.held[key]
	if held == nil {
		held = make(map[*delivery]bool)
		l.held[key] = held
	}
	return held
}

// heldBy returns the recorded deliveries of a reader that it has not begun to settle.
func (l *ledger) heldBy(r *reader) []*delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*delivery
	for _, held := range l.held {
		for d := range held {
			if d.reader == r {
				all = append(all, d)
			}
		}
	}
	return all
}

// applied returns how often a message was worked on.
func (l *ledger) applied(m *postrider.Message) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.record(m.ID).applied
}

// await waits until a condition about messages worked on is true.
func (l *ledger) await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		if condition() {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("waited %s for %s", patience, what)
		}
	}
}

// awaitApplied waits until all messages were worked on.
func (l *ledger) awaitApplied(t testing.TB, msgs []*postrider.Message) {
	t.Helper()
	next := 0
	defer func() {
		if t.Failed() && next < len(msgs) {
			t.Logf("of %d messages, the first not worked on is number %d, %s", len(msgs), next, msgs[next].ID)
		}
	}()
	l.await(t, fmt.Sprintf("%d messages to be worked on", len(msgs)), func() bool {
		for next < len(msgs) && l.applied(msgs[next]) > 0 {
			next++
		}
		return next == len(msgs)
	})
}

// delivery is a postrider.Delivery with its reader and time of arrival.
type delivery struct {
	*postrider.Delivery
	reader *reader
	at     time.Time
}

// lost reports whether the delivery is lost.
func (d *delivery) lost() bool {
	select {
	case <-d.Lost():
		return true
	default:
		return false
	}
}

// settling records that the delivery is about to be settled.
func (d *delivery) settling() {
	if d.Err != nil {
		return
	}
	d.reader.ledger.mu.Lock()
	defer d.reader.ledger.mu.Unlock()
	delete(d.reader.ledger.held[d.Message.Key], d)
}

// ack acknowledges the delivery. If that succeeds before it is lost, the message must not be redelivered, unless the
// broker has cumulative acknowledgements and an earlier message is redelivered.
func (d *delivery) ack(ctx context.Context, t testing.TB) {
	t.Helper()
	d.settling()
	d.done(t, d.Ack(ctx))
}

func (d *delivery) reject(ctx context.Context, t testing.TB) {
	t.Helper()
	d.settling()
	d.done(t, d.Reject(ctx, "rejected by the test"))
}

func (d *delivery) nack(ctx context.Context, t testing.TB, after time.Duration) {
	t.Helper()
	d.settling()
	d.check(t, d.Nack(ctx, after))
}

// check checks the error of a settlement.
func (d *delivery) check(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil, d.reader.isDead(), errors.Is(err, context.Canceled):
	case postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable:
		t.Errorf("settle: %v, want success or an error made by Unavailable", err)
	}
}

// done records the result of an Ack or Reject.
func (d *delivery) done(t testing.TB, err error) {
	t.Helper()
	d.check(t, err)
	late := d.reader.caps.AckWait > 0 && time.Since(d.at) > d.reader.caps.AckWait/2 // it may already be being redelivered
	if d.Err != nil {
		return
	}
	l := d.reader.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.record(d.Message.ID)
	if err != nil || late || d.lost() || d.reader.isDead() {
		known.excused = true
		return
	}
	if d.reader.s.features.CumulativeAcks == "" {
		known.settled = d
	}
}

// mayBeUnknown reports whether the broker may not know about the settlement although it reported success.
func (d *delivery) mayBeUnknown() bool {
	d.reader.mu.Lock()
	defer d.reader.mu.Unlock()
	return d.reader.s.features.UnconfirmedAcks != "" && (d.reader.dead || d.reader.cut)
}

// allowAgain allows settled messages to be redelivered as if for the first time: the broker may have lost its record of
// them, with a connection or a server that was killed.
func (l *ledger) allowAgain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.messages {
		r.settled, r.counted = nil, false
	}
}

// apply simulates the work on a message. It checks that the order of its key is kept.
func (d *delivery) apply(t testing.TB) {
	t.Helper()
	l, m := d.reader.ledger, d.Message
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.Key != "" && d.reader.caps.Ordered && m.AggregateVersion > l.last[m.Key]+1 {
		t.Errorf("message %s is worked on, and the last one of its key was number %d", m.ID, l.last[m.Key])
	}
	l.record(m.ID).applied++
	l.last[m.Key] = max(l.last[m.Key], m.AggregateVersion)
	close(l.changed)
	l.changed = make(chan struct{})
}

// checkExcused fails for a message that is redelivered although its settlement succeeded in time.
func (s *inbound) checkExcused(t testing.TB, group string, d *delivery) {
	t.Helper()
	l := s.ledger(group)
	l.mu.Lock()
	defer l.mu.Unlock()
	if d.Err != nil || !l.record(d.Message.ID).excused {
		t.Errorf("nothing is left, and %s comes again", describe(d))
	}
}

func describe(d *delivery) string {
	if d.Err != nil {
		return fmt.Sprintf("what is no message (%v)", d.Err)
	}
	return "message " + d.Message.ID
}

// idsOf returns the sorted IDs of deliveries.
func idsOf(deliveries []*delivery) []string {
	var all []string
	for _, d := range deliveries {
		if d.Message != nil {
			all = append(all, d.Message.ID)
		}
	}
	slices.Sort(all)
	return all
}
