package memory

import (
	"context"

	"github.com/postrider/postrider"
)

// FindHeld implements store.Log.
func (s *Store) FindHeld(ctx context.Context, name string, keys []string) ([]string, error) {
	return do(ctx, s, "FindHeld", func(db *database) (out []string, err error) {
		r := db.relay(name)
		for _, key := range keys {
			if r.parked[postrider.PartitionOf(key, "", len(db.log))].held[key] != nil {
				out = append(out, key)
			}
		}
		return out, nil
	})
}
