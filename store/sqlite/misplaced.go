package sqlite

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider"
)

// No relay reads a row whose partition does not exist. Publish writes none, but a program that inserts rows itself can.
const (
	// misplacedSQL names the index because SQLite would otherwise read the whole log in the order of the result.
	misplacedSQL = `SELECT seq, id, key FROM {prefix}log INDEXED BY {prefix}log_partition WHERE partition < 0
		UNION ALL SELECT seq, id, key FROM {prefix}log INDEXED BY {prefix}log_partition WHERE partition >= ?
		ORDER BY seq LIMIT 1000`
	placeSQL = `INSERT INTO {prefix}log (partition, ` + messageColumns + `)
		SELECT ?2, ` + messageColumns + ` FROM {prefix}log WHERE seq = ?1`
	displaceSQL = `DELETE FROM {prefix}log WHERE seq = ?`
)

// misplaced is a message in a partition that does not exist.
type misplaced struct {
	seq     int64
	id, key string
}

// place writes up to 1,000 messages of partitions that do not exist again, as new messages of those that they belong to.
func (s *Store) place(ctx context.Context) error {
	some := false
	err := s.read(ctx, "look for partitions that do not exist", func(t txn) error {
		found, err := t.misplaced(ctx)
		some = len(found) > 0
		return err
	})
	if err != nil || !some {
		return err
	}
	err = s.write(ctx, "move messages to partitions that exist", relaxed, func(t txn) error {
		found, err := t.misplaced(ctx)
		if err != nil {
			return err
		}
		var n int
		if err := t.get(ctx, partitionsSQL, nil, &n); err != nil {
			return err
		}
		for _, m := range found {
			if _, err := t.exec(ctx, placeSQL, m.seq, postrider.PartitionOf(m.key, m.id, n)); err != nil {
				return err
			}
			if _, err := t.exec(ctx, displaceSQL, m.seq); err != nil {
				return err
			}
		}
		return nil
	})
	s.Wake()
	return err
}

func (t txn) misplaced(ctx context.Context) (found []misplaced, err error) {
	err = t.each(ctx, misplacedSQL, []any{t.s.number()}, func(rows *sql.Rows) error {
		var m misplaced
		err := rows.Scan(&m.seq, &m.id, &m.key)
		found = append(found, m)
		return err
	})
	return found, err
}
