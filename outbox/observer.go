package outbox

import (
	"context"
	"time"

	"github.com/postrider/postrider"
)

// Observer has functions that are told about publishing, for metrics and traces. Any of them may be nil. They are called in the
// goroutine that publishes, and must not change what they are given. Unlike Hooks, they cannot prevent anything.
type Observer struct {
	// Publishing is called before a call of Publish, or before each chunk of PublishSeq, which continues with the context that it
	// returns: the Propagator reads that. Published is called with it afterwards.
	Publishing func(ctx context.Context, msgs []*postrider.Message) context.Context
	Published  func(ctx context.Context, p Published)
}

// Published is the result of a call.
type Published struct {
	// Messages were written in the transaction, which may still be rolled back. If Err is not nil, they were not.
	Messages []*postrider.Message
	Took     time.Duration
	Err      error
}

// publishing tells the observer about a call and returns its context, and a function that tells how it ended.
func (o *Outbox[Tx]) publishing(ctx context.Context, msgs []*postrider.Message) (context.Context, func([]*postrider.Message, error)) {
	watch := o.config.Observer
	if watch == nil {
		return ctx, func([]*postrider.Message, error) {}
	}
	began := time.Now()
	if watch.Publishing != nil {
		ctx = watch.Publishing(ctx, msgs)
	}
	return ctx, func(ready []*postrider.Message, err error) {
		if watch.Published == nil {
			return
		}
		if err != nil && len(ready) == 0 {
			ready = msgs
		}
		watch.Published(ctx, Published{Messages: ready, Took: time.Since(began), Err: err})
	}
}
