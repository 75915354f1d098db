package memory

import (
	"context"
	"maps"
	"slices"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// Consumers implements store.StatusReader.
func (s *Store) Consumers(ctx context.Context) ([]store.ConsumerStatus, error) {
	return do(ctx, s, "Consumers", func(db *database) (out []store.ConsumerStatus, _ error) {
		at := now()
		for _, name := range slices.Sorted(maps.Keys(db.relays)) {
			if db.side(name) != store.KindConsumer {
				continue
			}
			in := db.inbox(name)
			st := store.ConsumerStatus{Name: name, Remembered: stored.Count(int64(len(in.claims)))}
			for _, taken := range in.claims {
				st.Oldest = max(st.Oldest, at.Sub(taken))
			}
			st.Positions = in.shownPositions()
			out = append(out, st)
		}
		return out, nil
	})
}
