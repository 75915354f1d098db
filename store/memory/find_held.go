package memory

import (
	"context"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// FindHeld implements store.Log.
func (s *Store) FindHeld(ctx context.Context, name string, leases []store.LeaseRef, keys []string) (store.FoundHeld, error) {
	return do(ctx, s, "FindHeld", func(db *database) (out store.FoundHeld, err error) {
		r := db.relay(name)
		for _, l := range leases {
			if db.lease(name, l) == nil {
				out.Lost = append(out.Lost, l.Partition)
			}
		}
		for _, key := range keys {
			if r.parked[postrider.PartitionOf(key, "", len(db.log))].held[key] != nil {
				out.Keys = append(out.Keys, key)
			}
		}
		return out, nil
	})
}
