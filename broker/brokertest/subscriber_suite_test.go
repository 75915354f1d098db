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

// TestWhatIsLostBeforeItIsLookedAt has one member receive a message and look at it only when another has received and
// settled it. That is in order if the first has lost it, and the broker's mistake if it has not.
func TestWhatIsLostBeforeItIsLookedAt(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"lost": true, "not lost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &inbound{groups: make(map[string]*ledger)}
			receive := func(number int) *delivery {
				return &delivery{
					Delivery: &postrider.Delivery{
						Message:    &postrider.Message{ID: "1", Key: "a", AggregateVersion: 1, Attempt: number},
						Deliveries: number, Redelivered: number > 1, Settler: given{make(chan struct{})},
					},
					reader: &reader{s: s, caps: postrider.SubscriberCapabilities{Ordered: true}, ledger: s.ledger("g")},
					at:     time.Now(),
				}
			}
			stalled, second := receive(1), receive(2)
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
