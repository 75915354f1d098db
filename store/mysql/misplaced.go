package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"slices"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
)

// No relay reads a row whose partition does not exist. Publish and the procedure write none, but a program that inserts rows
// itself can.
const (
	// misplacedSQL finds such rows by index. Partition -1 has those that close gaps. The parameter is the number of partitions.
	misplacedSQL = `(SELECT seq, id, message_key FROM {prefix}log WHERE partition_id < -1 ORDER BY seq LIMIT 1000)
		UNION ALL (SELECT seq, id, message_key FROM {prefix}log WHERE partition_id >= ? ORDER BY seq LIMIT 1000)`
	placeSQL = `INSERT INTO {prefix}log (partition_id, ` + messageColumns + `)
		SELECT ?2, ` + messageColumns + ` FROM {prefix}log WHERE seq = ?1`
	misplacedRowSQL = `SELECT seq FROM {prefix}log WHERE seq = ? FOR UPDATE`
	displaceSQL     = `DELETE FROM {prefix}log WHERE seq = ?`
)

// misplaced is a message in a partition that does not exist.
type misplaced struct {
	seq     int64
	id, key string
}

// place writes up to 2,000 messages of partitions that do not exist again, as new messages of those that they belong to.
func (s *Store) place(ctx context.Context) error {
	var found []misplaced
	err := s.pooled().each(ctx, misplacedSQL, []any{s.number()}, func(rows *sql.Rows) error {
		var m misplaced
		err := rows.Scan(&m.seq, &m.id, &m.key)
		found = append(found, m)
		return err
	})
	if err != nil || len(found) == 0 {
		return s.cfg.explain("look for partitions that do not exist", err)
	}
	slices.SortFunc(found, func(a, b misplaced) int { return cmp.Compare(a.seq, b.seq) })
	s.cfg.Logger.Warn("postrider: the log has messages in partitions that do not exist; they are moved to those that they belong to. " +
		"A program that inserts rows must compute the partition as the SQL contract says")
	for _, m := range found {
		err := s.write(ctx, "move a message to a partition that exists", func(t txn) error {
			if err := t.get(ctx, misplacedRowSQL, []any{m.seq}, new(int64)); err != nil {
				return stored.OrNone(err) // another process has moved it
			}
			if _, err := t.exec(ctx, placeSQL, m.seq, postrider.PartitionOf(m.key, m.id, t.partitions)); err != nil {
				return err
			}
			_, err := t.exec(ctx, displaceSQL, m.seq)
			return err
		})
		if err != nil {
			return err
		}
	}
	s.Wake()
	return nil
}
