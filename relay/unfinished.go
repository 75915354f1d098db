package relay

import (
	"slices"

	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/relay/internal/schedule"
)

// A Publish call may return before all of its messages have an outcome (attempt.UnfinishedError), so that one on which the destination
// works for long does not hold back the others. Those of a key continue as a call of their own: they are parked as slow, nothing else is
// called with their key, and their outcomes are processed like those of any call. They have no worker, only a goroutine that waits.

// markUnfinished marks the unfinished messages: those of a key that follow one another, after none that has failed. The call of any other
// was cut off: the publisher breaks its contract, or a row between them could not be decoded, so that it was not given to the publisher.
func markUnfinished(batch []*item, results []result) {
	began, stopped := false, false
	for i, it := range batch {
		v := &results[i]
		if i == 0 || !schedule.SameQueue(batch[i-1], it) {
			began, stopped = false, false
		}
		it.Unfinished = v.unfinished != nil && !stopped
		v.cut = v.cut || v.unfinished != nil && stopped
		began = began || it.Unfinished
		stopped = stopped || !it.Unfinished && (began || v.failed && it.Message.err == nil)
	}
}

// continued waits for messages of one queue that continue, and processes their outcomes. AttemptTimeout does not end it: it is for calls.
func (r *Relay) continued(batch []*item, unfinished []*attempt.UnfinishedError, observed *observedCall) {
	ctx := batch[0].Message.partition.ctx
	errs := make([]error, len(batch))
	for i, u := range unfinished {
		errs[i] = u.Wait(ctx)
	}
	r.mu.Lock()
	for _, it := range batch {
		it.Unfinished = false
	}
	r.mu.Unlock()
	r.complete(batch, r.results(batch, errs), false, observed)
	observed.end()
}

// startContinued lets calls continue that are a part of one that has returned.
func (r *Relay) startContinued(batch []*item, results []result, open [][]*item, observed *observedCall) {
	for _, call := range open {
		first := slices.Index(batch, call[0])
		unfinished := make([]*attempt.UnfinishedError, len(call))
		for i := range call {
			unfinished[i] = results[first+i].unfinished
		}
		part := observed.cut(first, len(call))
		r.workers.Go(func() { r.continued(call, unfinished, part) })
	}
}
