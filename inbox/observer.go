package inbox

import (
	"context"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/observe"
)

// outcomes translates the result of a transaction.
var outcomes = map[end]observe.Outcome{
	applied: observe.Applied, duplicate: observe.Duplicate, skipped: observe.Skipped,
	parkedFailed: observe.Parked, parkedQueued: observe.Parked, deadLettered: observe.DeadLettered, discarded: observe.Discarded,
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
		c.watched.Call(c.cfg.Logger, func() { ctx = o.Processing(ctx, msgs) }, "consumer", c.cfg.Name)
	}
	res := c.transact(ctx, batch)
	if o.Processed == nil {
		return res
	}
	p := observe.Processed{Took: time.Since(began), Err: res.err}
	if res.err == nil {
		for _, it := range batch {
			r := observe.Result{Message: it.msg, Outcome: outcomes[res.ends[it]]}
			if r.Outcome == observe.DeadLettered || r.Outcome == observe.Discarded {
				r.Reason = it.fate.reason
			}
			p.Results = append(p.Results, r)
		}
	}
	c.watched.Call(c.cfg.Logger, func() { o.Processed(ctx, p) }, "consumer", c.cfg.Name)
	return res
}
