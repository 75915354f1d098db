package inboxtest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider"
)

// logSlowHandlers: messages of different keys that arrive together may share a transaction, in which they run one after another. Those
// of a slow handler run at the same time as long as there are workers.
func logSlowHandlers[Tx any](w *world[Tx]) {
	if w.oneWriter() {
		return // transactions run one after another
	}
	const keys = 4
	s := logSetting[Tx]()
	s.cfg.Concurrency = keys
	var mu sync.Mutex
	running, together := 0, make(chan struct{})
	s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
		if m.Key == "first" {
			w.elapse(20 * time.Millisecond)
			return w.effect(ctx, tx, m)
		}
		mu.Lock()
		if running++; running == keys {
			close(together)
		}
		mu.Unlock()
		select {
		case <-together:
		case <-ctx.Done():
			return ctx.Err()
		}
		return w.effect(ctx, tx, m)
	}
	w.start(s)
	want := w.send("first") // which shows how long they take
	w.untilEffects(want...)
	var all []string
	for i := range keys {
		all = append(all, fmt.Sprint("k", i))
	}
	w.untilEffects(append(want, w.send(all...)...)...)
}
