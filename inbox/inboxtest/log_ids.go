package inboxtest

import (
	"context"
	"time"

	"github.com/postrider/postrider"
)

// logKeepsIDs: IDs beyond the position are kept for as long as they may be read again.
func logKeepsIDs[Tx any](w *world[Tx]) {
	if !w.h.Bubble || w.oneWriter() {
		return // IDs are removed once a minute
	}
	s := logSetting[Tx]()
	s.cfg.KeepIDs, s.cfg.Batch = time.Second, 1
	s.handler = func(ctx context.Context, tx Tx, m *postrider.Message) error {
		if m.Key == "slow" {
			<-ctx.Done()
			return ctx.Err()
		}
		return w.effect(ctx, tx, m)
	}
	p := w.start(s)
	want := w.send("a", "slow", "a", "b")
	w.until("all but one", func() bool { return len(w.effects()) == 3 })
	w.elapse(5 * time.Minute)
	p.kill()
	w.elapse(5 * time.Minute)
	healed := logSetting[Tx]()
	healed.cfg.KeepIDs = time.Second
	w.start(healed)
	w.untilEffects(want...)
	w.untilQuiet()
	w.elapse(5 * time.Minute)
	w.wantSet("effects", w.effects(), want)
	status, err := w.store.Consumers(w.ctx)
	w.must(err, "status")
	for _, c := range status {
		if c.Name == consumer && c.Remembered.N != 0 {
			w.t.Errorf("%d IDs are kept that nobody reads again", c.Remembered.N)
		}
	}
}
