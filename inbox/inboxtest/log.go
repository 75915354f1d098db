package inboxtest

import (
	"fmt"
	"slices"

	"github.com/postrider/postrider"
)

// unsettled are the messages that the broker's group has not settled, and the offsets of a log beyond the consumer's position.
func (w *world[Tx]) unsettled() []string {
	w.t.Helper()
	if w.log == nil {
		return w.broker.Unsettled(consumer)
	}
	parts, err := w.log.Partitions(w.ctx)
	if err != nil {
		return []string{err.Error()}
	}
	stored, err := w.store.LogPositions(w.ctx, consumer)
	w.must(err, "read the positions")
	at := make(map[string]int64)
	for _, p := range parts {
		at[p.Name] = p.First - 1
	}
	for _, p := range stored {
		at[p.Partition] = p.Offset
	}
	var out []string
	for _, p := range parts {
		for offset := at[p.Name] + 1; offset <= p.End; offset++ {
			out = append(out, fmt.Sprintf("%s:%d", p.Name, offset))
		}
	}
	return out
}

// redeliver makes the consumer receive messages again that it has processed. A log does not deliver twice, but a publisher may send
// twice.
func (w *world[Tx]) redeliver(s setting[Tx], ids ...string) {
	w.t.Helper()
	if !s.log {
		w.broker.Redeliver(consumer, ids...)
		return
	}
	w.publish(slices.DeleteFunc(w.broker.Messages(topic), func(m *postrider.Message) bool { return !slices.Contains(ids, m.ID) })...)
}
