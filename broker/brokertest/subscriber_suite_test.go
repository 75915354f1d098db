package brokertest

import (
	"context"
	"testing"
	"time"

	"github.com/postrider/postrider"
)

// complaints is a test that only counts what it is told.
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

// deliveryNumber is a delivery of one message, each to a member of its own, from an ordered source.
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

// TestWhatIsLostBeforeItIsLookedAt has one member receive a message and look at it only when another has received and
// settled it. That is in order if the first has lost it, and the broker's mistake if it has not.
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
			stalled.reader.check(seen, stalled) // in the midst of the other's work
			second.apply(seen)
			second.ack(t.Context(), seen)
			stalled.reader.check(seen, stalled) // and behind it
			if (seen.count == 0) != lost {
				t.Errorf("lost %v: %d complaints", lost, seen.count)
			}
		})
	}
}

// TestLostLate has a member hold a message that another receives. That is the broker's mistake, unless the first was cut off and
// the broker passes on what it had before it can know. The other way round, in which the one that was cut off looks at its message
// last, is the same.
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
