package sqlite

import (
	"context"

	"github.com/postrider/postrider/internal/stored"
)

// FindHeld implements store.Log.
func (s *Store) FindHeld(ctx context.Context, name string, keys []string) (found []string, err error) {
	err = s.read(ctx, "find held keys", func(t txn) error {
		found, err = stored.Column[string](ctx, t.query, heldAmongSQL, name, list(keys))
		return err
	})
	return found, err
}
