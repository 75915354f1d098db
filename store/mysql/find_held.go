package mysqlstore

import (
	"context"
	"database/sql"
	"strings"

	"github.com/postrider/postrider/store"
)

// foundHeldSQL lists those of the leases %s that hold, and the keys that are held.
const foundHeldSQL = `SELECT partition_id, '' FROM {prefix}cursors WHERE relay = ?1 AND owner <> '' AND incarnation = {present} AND (%s)
	UNION ALL SELECT -1, message_key FROM {prefix}held WHERE relay = ?1 AND message_key IN ?2`

// FindHeld implements store.Log.
func (s *Store) FindHeld(ctx context.Context, name string, leases []store.LeaseRef, keys []string) (found store.FoundHeld, err error) {
	if len(leases) == 0 || len(keys) == 0 {
		return found, nil
	}
	holds, terms := make(map[int]bool), make([]string, len(leases))
	for i, l := range leases {
		terms[i] = render(leaseTerm, []any{l.Partition, l.Token})
	}
	text := strings.Replace(render(foundHeldSQL, []any{name, distinct(keys)}), `%s`, strings.Join(terms, ` OR `), 1)
	err = s.pooled().each(ctx, text, nil, func(rows *sql.Rows) error {
		var partition int
		var key string
		if err := rows.Scan(&partition, &key); err != nil {
			return err
		}
		if partition < 0 {
			found.Keys = append(found.Keys, key)
		} else {
			holds[partition] = true
		}
		return nil
	})
	found.Lost = agenda{holds: holds}.lost(store.DueRequest{Leases: leases})
	return found, s.cfg.explain("find held keys", err)
}
