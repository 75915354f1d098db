package outbox

import (
	"context"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/observe"
)

// publishing tells the observer about a call and returns its context, and a function that tells how it ended.
func (o *Outbox[Tx]) publishing(ctx context.Context, msgs []*postrider.Message) (context.Context, func([]*postrider.Message, error)) {
	watch := o.config.Observer
	if watch == nil {
		return ctx, func([]*postrider.Message, error) {}
	}
	began := time.Now()
	if watch.Publishing != nil {
		o.watched.Call(o.config.Logger, func() { ctx = watch.Publishing(ctx, msgs) }, "source", o.config.Source)
	}
	return ctx, func(ready []*postrider.Message, err error) {
		if watch.Published == nil {
			return
		}
		if err != nil && len(ready) == 0 {
			ready = msgs
		}
		p := observe.Published{Messages: ready, Took: time.Since(began), Err: err}
		o.watched.Call(o.config.Logger, func() { watch.Published(ctx, p) }, "source", o.config.Source)
	}
}
