package relay_test

import (
	"context"
	"runtime"
	"strings"
	"time"

	"github.com/postrider/postrider"
)

// The destination of a history: the code that a handler calls, or a broker. It takes time and fails in every way it can,
// until the faults stop.

// handle is the destination as a handler.
func (h *history) handle(ctx context.Context, m *postrider.Message) error {
	defer h.begin(m)()
	takes := h.destChance.upTo(30 * time.Millisecond)
	switch {
	case h.destChance.oneIn(10):
		takes = 0
	case h.destChance.oneIn(30):
		takes = h.destChance.upTo(20 * time.Second) // longer than ParkAfter and than a lease
	}
	err := work(ctx, takes)
	if err == nil && !h.quiet.Load() {
		err = h.refusal(m)
	}
	h.ended(m, err)
	return err
}

// refusal is the outcome of a message that a handler has worked on: most succeed.
func (h *history) refusal(m *postrider.Message) error {
	switch x := h.destChance.float(); {
	case x < 0.08:
		return errBoom
	case x < 0.10:
		return postrider.Retry(h.destChance.upTo(3*time.Second), errBoom)
	case x < 0.12:
		return postrider.Snooze(h.destChance.upTo(3 * time.Second))
	case x < 0.14:
		return postrider.Dead("refused", errBoom)
	case x < 0.15:
		h.ended(m, errBoom)
		panic("the handler panics")
	case x < 0.16:
		h.ended(m, errBoom)
		runtime.Goexit()
	case x < 0.17:
		return postrider.Unavailable(errBoom)
	}
	return nil
}

// receive is the destination as a broker.
func (h *history) receive(ctx context.Context, msgs []*postrider.Message) []error {
	defer h.begin(msgs...)()
	h.note("publishing %s", messageIDs(msgs))
	longest := 30 * time.Millisecond
	if h.destChance.oneIn(20) {
		longest = 9 * time.Second
	}
	errs := make([]error, len(msgs))
	if err := work(ctx, h.destChance.upTo(longest)); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	if !h.quiet.Load() && h.destChance.happens(0.01) {
		for _, m := range msgs {
			h.ended(m, errBoom)
		}
		panic("the publisher panics")
	}
	failed := make(map[string]int) // by key, the first that failed
	for i, m := range msgs {
		if at, ok := failed[m.Key]; ok && m.Key != "" {
			errs[i] = postrider.PredecessorFailed(msgs[at], errs[at])
			continue
		}
		if errs[i] = h.rejection(); errs[i] != nil {
			failed[m.Key] = i
		}
		h.ended(m, errs[i])
	}
	return errs
}

// rejection is the outcome of a message that a broker was given: most are accepted while the broker is up.
func (h *history) rejection() error {
	if h.quiet.Load() {
		return nil
	}
	if h.down.Load() {
		if h.destChance.oneIn(2) {
			return postrider.Unavailable(errBoom)
		}
		return errBoom
	}
	switch x := h.destChance.float(); {
	case x < 0.08:
		return errBoom
	case x < 0.10:
		return postrider.Dead("rejected", errBoom)
	case x < 0.11:
		return postrider.Snooze(time.Second)
	case x < 0.112:
		return postrider.Unavailable(errBoom)
	}
	return nil
}

// work takes time, unless the call is cancelled.
func work(ctx context.Context, takes time.Duration) error {
	t := time.NewTimer(takes)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func messageIDs(msgs []*postrider.Message) string {
	var out strings.Builder
	for _, m := range msgs {
		out.WriteString(" " + m.ID)
	}
	return out.String()
}
