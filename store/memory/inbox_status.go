package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
)

var _ inbox.StatusStore = (*Store)(nil)

// Consumers implements inbox.StatusStore.
func (s *Store) Consumers(ctx context.Context) ([]inbox.ConsumerStatus, error) {
	return do(ctx, s, "Consumers", func(db *database) (out []inbox.ConsumerStatus, _ error) {
		at := now()
		for _, name := range slices.Sorted(maps.Keys(db.relays)) {
			if db.side(name) != deadletter.ConsumerSide {
				continue
			}
			in := db.inbox(name)
			st := inbox.ConsumerStatus{Name: name, Remembered: add(relay.Count{}, relay.Count{N: int64(len(in.claims))})}
			for _, taken := range in.claims {
				st.Oldest = max(st.Oldest, at.Sub(taken))
			}
			for _, m := range in.watermarks {
				st.Watermarks = append(st.Watermarks, inbox.WatermarkStatus{
					Partition: m.partition, Epoch: m.epoch, Offset: m.offset, Moved: at.Sub(m.at),
				})
			}
			slices.SortFunc(st.Watermarks, func(a, b inbox.WatermarkStatus) int {
				return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Epoch, b.Epoch))
			})
			out = append(out, st)
		}
		return out, nil
	})
}
