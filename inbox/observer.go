package inbox

import (
	"context"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

// Observer has functions that are told what a consumer does, for metrics and traces. Any of them may be nil. They are called from
// the consumer's goroutines, several at a time, must return at once, and must not change what they are given.
type Observer struct {
	// Processing is called before a transaction for messages from the broker, which gets the context that it returns. Processed
	// is called with that context afterwards.
	Processing func(ctx context.Context, msgs []*postrider.Message) context.Context
	Processed  func(ctx context.Context, p Processed)
	// Parked is told about the work on parked messages.
	Parked *relay.Observer
}

// Processed is the result of a transaction for messages from the broker.
type Processed struct {
	Took time.Duration
	// Err says why nothing was committed; Results then is empty.
	Err     error
	Results []Result
}

// Result is what became of a message.
type Result struct {
	Message *postrider.Message
	Outcome Outcome
	// Reason says why it was dead-lettered.
	Reason string
}

// Outcome is what became of a message from the broker.
type Outcome string

// The outcomes of a message from the broker.
const (
	Applied      Outcome = "applied"
	Duplicate    Outcome = "duplicate"
	Skipped      Outcome = "skipped"
	Parked       Outcome = "parked"
	DeadLettered Outcome = "dead"
)

// outcomes translates the result of a transaction.
var outcomes = map[end]Outcome{
	applied: Applied, duplicate: Duplicate, skipped: Skipped, parkedFailed: Parked, parkedQueued: Parked, deadLettered: DeadLettered,
}

// observedTransact is transact, with the observer.
func (c *Consumer[Tx]) observedTransact(ctx context.Context, batch []*item) result {
	o := c.cfg.Observer
	if o == nil {
		return c.transact(ctx, batch)
	}
	began := time.Now()
	if o.Processing != nil {
		msgs := make([]*postrider.Message, len(batch))
		for i, it := range batch {
			msgs[i] = it.msg
		}
		ctx = o.Processing(ctx, msgs)
	}
	res := c.transact(ctx, batch)
	if o.Processed == nil {
		return res
	}
	p := Processed{Took: time.Since(began), Err: res.err}
	if res.err == nil {
		for _, it := range batch {
			r := Result{Message: it.msg, Outcome: outcomes[res.ends[it]]}
			if r.Outcome == DeadLettered {
				r.Reason = it.fate.reason
			}
			p.Results = append(p.Results, r)
		}
	}
	o.Processed(ctx, p)
	return res
}
