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

// errPoison is the error that refuses the poisoned message.
var errPoison = errors.New("refused: the amount has no currency")

// errPredecessorFailed is the error of messages after the poisoned one with the same key in the same batch.
var errPredecessorFailed = errors.New("after a refused message of the same key")

// poison refuses the marked message, as a broker or gateway might, until the cause is fixed.
type poison struct{ repaired atomic.Bool }

// intercept keeps the contract of a publisher: every later message with the refused one's key fails too.
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
				refused[i] = errPredecessorFailed
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

// merge adds the outcomes of the messages that were passed on to those of all.
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
