package inboxtest

import (
	"context"
	"slices"
	"sync"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
)

// sharedBatches: messages that follow one another are handled in one relay.Batch; a bad one costs only itself, also if nobody knows
// which it is.
func sharedBatches[Tx any](w *world[Tx]) {
	for _, log := range []bool{false, true} {
		for _, failing := range []string{"begin", "message", "end"} {
			w := newWorld(w.t, w.h)
			b := &batches[Tx]{w: w, failing: failing}
			s := setting[Tx]{log: log, cfg: inbox.ConsumerConfig{Batch: 20, MaxAttempts: 1000}, begin: b.begin}
			s.source.Partitions = 1
			want := w.send("a", "b", "", "a", "b", "a", "c")
			b.bad = want[3]
			p := w.start(s)
			w.until("all others, while "+failing+" fails", func() bool { return len(w.effects()) == 5 })
			w.wantSet("effects while one fails", w.effects(), []string{want[0], want[1], want[2], want[4], want[6]})
			b.heal()
			w.untilEffects(want...)
			w.want("order", w.effectsOf("a"), []string{want[0], want[3], want[5]})
			w.untilQuiet()
			p.stop()
			if b.largest < 2 {
				w.t.Errorf("no two messages were in a batch")
			}
		}
	}
}

// batches begins batches in which, while they have a bad message, a step fails: begin, message or end.
type batches[Tx any] struct {
	w       *world[Tx]
	failing string
	mu      sync.Mutex
	bad     string // "": none
	largest int
}

func (b *batches[Tx]) heal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bad = ""
}

func (b *batches[Tx]) begin(_ context.Context, tx Tx, msgs []*postrider.Message) (relay.Batch, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.largest = max(b.largest, len(msgs))
	if b.failing == "begin" && slices.ContainsFunc(msgs, func(m *postrider.Message) bool { return m.ID == b.bad }) {
		return nil, errBoom
	}
	return &batch[Tx]{batches: b, tx: tx}, nil
}

// batch has its effects at the end.
type batch[Tx any] struct {
	*batches[Tx]
	tx      Tx
	handled []*postrider.Message
}

func (b *batch[Tx]) fails(step string, m *postrider.Message) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failing == step && m.ID == b.bad
}

func (b *batch[Tx]) Handle(_ context.Context, m *postrider.Message) error {
	if b.fails("message", m) {
		return errBoom
	}
	b.handled = append(b.handled, m)
	return nil
}

func (b *batch[Tx]) End(ctx context.Context) error {
	for _, m := range b.handled {
		if b.fails("end", m) {
			return errBoom
		}
		if err := b.w.effect(ctx, b.tx, m); err != nil {
			return err
		}
	}
	return nil
}
