package relay_test

import (
	"cmp"
	"context"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// The side effects of a history whose handlers have transactions.

// handleTx runs a side effect: it publishes a message on another topic.
func (h *history) handleTx(ctx context.Context, tx *memory.Tx, m *postrider.Message) error {
	if err := h.handle(ctx, m); err != nil {
		return err
	}
	return h.store.Insert(ctx, tx, []*postrider.Message{effectOf(m)})
}

func effectOf(m *postrider.Message) *postrider.Message {
	return &postrider.Message{ID: m.ID, Type: "effect", Topic: "effects", Key: m.Key, Time: time.Now()}
}

// historyBatch is a batch with the side effects of handleTx at its end.
type historyBatch struct {
	*history
	tx      *memory.Tx
	handled []*postrider.Message
}

func (h *history) beginBatch(ctx context.Context, tx *memory.Tx, msgs []*postrider.Message) (relay.Batch, error) {
	return &historyBatch{h, tx, nil}, h.batchFails(ctx, msgs)
}

// batchFails is the outcome of the beginning or the end of a batch with some messages: most succeed. A message that fails alone may become a
// dead letter.
func (h *history) batchFails(ctx context.Context, msgs []*postrider.Message) error {
	if h.quiet.Load() || !h.destChance.oneIn(15) || len(msgs) == 0 {
		return nil
	}
	if len(msgs) == 1 {
		h.leaves(msgs[0].ID)
	}
	if h.destChance.oneIn(4) {
		panic("a batch panics")
	}
	return cmp.Or(work(ctx, h.destChance.upTo(3*time.Second)), errBoom)
}

func (b *historyBatch) Handle(ctx context.Context, m *postrider.Message) error {
	err := b.handle(ctx, m)
	b.handled = append(b.handled, m)
	return err
}

func (b *historyBatch) End(ctx context.Context) error {
	if err := b.batchFails(ctx, b.handled); err != nil || len(b.handled) == 0 {
		return err
	}
	var effects []*postrider.Message
	for _, m := range b.handled {
		effects = append(effects, effectOf(m))
	}
	return b.store.Insert(ctx, b.tx, effects)
}

// effects returns the messages that have had side effects, by key, in the order of those, and how many each has had.
func (h *history) effects() (out map[string][]string, times map[string]int) {
	out, times = make(map[string][]string), make(map[string]int)
	for p := range 3 {
		batches, err := h.store.Fetch(h.t.Context(), "", store.FetchRequest{
			Partitions: []store.FetchPartition{{LeaseRef: store.LeaseRef{Partition: p}}}, Limit: 1_000_000, MaxBytes: 1 << 30,
		})
		if err != nil {
			h.t.Fatalf("read the log: %v", err)
		}
		for _, b := range batches {
			for _, rec := range b.Entries {
				if m := rec.Message; m.Topic == "effects" {
					out[m.Key] = append(out[m.Key], m.ID)
					times[m.ID]++
				}
			}
		}
	}
	return out, times
}
