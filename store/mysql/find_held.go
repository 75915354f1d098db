package mysqlstore

import "context"

// FindHeld implements store.Log.
func (s *Store) FindHeld(ctx context.Context, name string, keys []string) (found []string, err error) {
	err = s.read(ctx, "find held keys", func(t txn) error {
		found, err = t.heldAmong(ctx, name, keys)
		return err
	})
	return found, err
}
