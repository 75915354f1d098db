package demo

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

const (
	poisonedCustomer = "customer/7"
	poisonHeader     = "poison"
)

// errPoison is what the poisoned message is refused with.
var errPoison = errors.New("refused: the amount has no currency")

// errBehind is what messages behind the poisoned one fail with when they stand in the same batch.
var errBehind = errors.New("behind a refused message of the same key")

// poison refuses the marked message, as a broker or a gateway would that cannot take it, until it is repaired.
type poison struct{ repaired atomic.Bool }

// intercept keeps the contract of a publisher: behind the refused message, every follower of its key fails too.
func (p *poison) intercept(next relay.PublishFunc) relay.PublishFunc {
	return func(ctx context.Context, msgs []*postrider.Message) []error {
		if p.repaired.Load() {
			return next(ctx, msgs)
		}
		refused := make([]error, len(msgs))
		var rest []*postrider.Message
		found := ""
		for i, m := range msgs {
			switch {
			case m.Headers[poisonHeader] != "":
				refused[i], found = errPoison, m.Key
			case found != "" && m.Key == found:
				refused[i] = errBehind
			default:
				rest = append(rest, m)
			}
		}
		if found == "" {
			return next(ctx, msgs)
		}
		if len(rest) == 0 {
			return refused
		}
		return merge(refused, next(ctx, rest))
	}
}

// merge fills the outcomes of the messages that were passed on into those of all.
func merge(refused, passed []error) []error {
	n := 0
	for i := range refused {
		if refused[i] != nil {
			continue
		}
		if passed != nil {
			refused[i] = passed[n]
		}
		n++
	}
	return refused
}
