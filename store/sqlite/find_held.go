package sqlite

import (
	"context"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// holdsSQL has a row if a lease holds: ?1 relay, ?2 partition, ?3 token, ?4 incarnation.
const holdsSQL = `SELECT partition FROM {prefix}cursors WHERE relay = ?1 AND partition = ?2 AND token = ?3 AND incarnation = ?4 AND owner <> ''`

// FindHeld implements store.Log.
func (s *Store) FindHeld(ctx context.Context, name string, leases []store.LeaseRef, keys []string) (found store.FoundHeld, err error) {
	err = s.read(ctx, "find held keys", func(t txn) error {
		found = store.FoundHeld{}
		if found.Keys, err = stored.Column[string](ctx, t.query, heldAmongSQL, name, list(keys)); err != nil {
			return err
		}
		for _, l := range leases {
			holds, err := stored.Column[int](ctx, t.query, holdsSQL, name, l.Partition, l.Token, s.incarnation.text)
			if err != nil {
				return err
			}
			if len(holds) == 0 {
				found.Lost = append(found.Lost, l.Partition)
			}
		}
		return nil
	})
	return found, err
}
