package demo

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

// badHeader marks a message of an order that the bad deployment wrote.
const badHeader = "no-currency"

// errNoCurrency is the error with which the destination refuses a marked message.
var errNoCurrency = errors.New("refused: the amount has no currency")

// errPredecessorFailed is the error of messages after a refused one with the same key in the same batch.
var errPredecessorFailed = errors.New("after a refused message of the same key")

// refusal refuses marked messages, as a broker or gateway might, until the cause is fixed.
type refusal struct{ fixed atomic.Bool }

// intercept keeps the contract of a publisher: every later message with a refused one's key fails too.
func (r *refusal) intercept(next relay.PublishFunc) relay.PublishFunc {
	return func(ctx context.Context, msgs []*postrider.Message) []error {
		if r.fixed.Load() {
			return next(ctx, msgs)
		}
		refused := make([]error, len(msgs))
		var rest []*postrider.Message
		keys := map[string]bool{}
		for i, m := range msgs {
			switch {
			case m.Headers[badHeader] != "":
				refused[i], keys[m.Key] = errNoCurrency, true
			case keys[m.Key]:
				refused[i] = errPredecessorFailed
			default:
				rest = append(rest, m)
			}
		}
		if len(keys) == 0 {
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
