package brokertest

import (
	"context"
	"testing"
	"time"

	"github.com/postrider/postrider"
)

// complaints is a testing.TB that only counts errors.
type complaints struct {
	testing.TB
	count int
}

func (c *complaints) Helper()               {}
func (c *complaints) Errorf(string, ...any) { c.count++ }

// given is a Settler whose settlements succeed.
type given struct{ lost chan struct{} }

func (given) Ack(context.Context) error                 { return nil }
func (given) Nack(context.Context, time.Duration) error { return nil }
func (given) Reject(context.Context, string) error      { return nil }
func (given) Extend(context.Context) error              { return nil }
func (g given) Lost() <-chan struct{}                   { return g.lost }

// deliveryNumber returns a delivery of one message, each to its own member, from an ordered source.
func (s *inbound) deliveryNumber(n int) *delivery {
	return &delivery{
		Delivery: &postrider.Delivery{
			Message:    &postrider.Message{ID: "1", Key: "a", AggregateVersion: 1, Attempt: n},
			Deliveries: n, Redelivered: n > 1, Settler: given{make(chan struct{})},
		},
		reader: &reader{s: s, caps: postrider.SubscriberCapabilities{Ordered: true}, ledger: s.ledger("g")},
		at:     time.Now(),
	}
}

// TestWhatIsLostBeforeItIsLookedAt checks a member's delivery only after another member has received and settled the
// message. That is correct if the first member has lost it, and the broker's error otherwise.
func TestWhatIsLostBeforeItIsLookedAt(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"lost": true, "not lost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &inbound{groups: make(map[string]*ledger)}
			stalled, second := s.deliveryNumber(1), s.deliveryNumber(2)
			if lost {
				close(stalled.Settler.(given).lost)
			}
			seen := &complaints{TB: t}
			second.reader.check(seen, second)
			stalled.reader.check(seen, stalled) // during the other member's work
			second.apply(seen)
			second.ack(t.Context(), seen)
			stalled.reader.check(seen, stalled) // and after it
			if (seen.count == 0) != lost {
				t.Errorf("lost %v: %d complaints", lost, seen.count)
			}
		})
	}
}

// TestLostLate has a member hold a message that another one receives. That is the broker's error, unless the first
// member was cut off and the broker redelivers its messages before it can know. The order in which the two deliveries
// are checked does not matter.
func TestLostLate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		late                     string
		dead, deadFirst, allowed bool
	}{
		"a lease, alive":              {deadFirst: true},
		"a lease, cut off":            {dead: true, deadFirst: true},
		"no lease, alive":             {late: "no lease", deadFirst: true},
		"no lease, cut off":           {late: "no lease", dead: true, deadFirst: true, allowed: true},
		"a lease, looks late":         {dead: true},
		"no lease, looks late":        {late: "no lease", dead: true, allowed: true},
		"no lease, alive, looks late": {late: "no lease"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &inbound{features: SubscriberFeatures{LostLate: c.late}, groups: make(map[string]*ledger)}
			first, second := s.deliveryNumber(1), s.deliveryNumber(2)
			first.reader.dead = c.dead
			order := []*delivery{first, second}
			if !c.deadFirst {
				order = []*delivery{second, first}
			}
			seen := &complaints{TB: t}
			for _, d := range order {
				d.reader.check(seen, d)
			}
			if (seen.count == 0) != c.allowed {
				t.Errorf("%d complaints, want none: %v", seen.count, c.allowed)
			}
			if held := first.reader.ledger.heldBy(first.reader); len(held) != 1 {
				t.Errorf("%d messages are noted as held by the first, want 1", len(held))
			}
		})
	}
}
