package sqlite

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.StatusReader = (*Store)(nil)

// Each count of a relay reads little more than store.CountLimit (10,000) index entries.
const (
	knownSQL = `SELECT relay FROM {prefix}cursors UNION SELECT relay FROM {prefix}relays ORDER BY relay`
	// ?2 is now, ?3 the incarnation. A lease that does not hold has no owner.
	cursorsSQL = `SELECT c.partition, coalesce(o.owner, ''), coalesce(o.alive_until, 0), c.number, c.kind, c.position, c.settled_at,
			c.delivered, c.failed, ''
		FROM {prefix}cursors c LEFT JOIN {prefix}relays o ON o.relay = c.relay AND o.owner = c.owner AND o.alive_until > ?2
			AND c.incarnation IN ('', ?3)
		WHERE c.relay = ?1 ORDER BY c.partition`
	backlogSQL = `SELECT count(*) FROM (SELECT 1 FROM {prefix}log l WHERE l.partition = ?2 AND l.seq > ?3
		AND NOT EXISTS (SELECT 1 FROM {prefix}parked p WHERE p.relay = ?1 AND p.seq = l.seq) LIMIT ?4)`
	oldestSQL = `SELECT max(created_at) FROM (SELECT l.created_at FROM {prefix}log l WHERE l.partition = ?2 AND l.seq > ?3
		AND NOT EXISTS (SELECT 1 FROM {prefix}parked p WHERE p.relay = ?1 AND p.seq = l.seq) ORDER BY l.seq LIMIT 1)`
	exceptionsSQL = `SELECT
		(SELECT count(*) FROM (SELECT 1 FROM {prefix}parked WHERE relay = ?1 LIMIT 10001)),
		(SELECT min(parked_at) FROM {prefix}parked WHERE relay = ?1),
		(SELECT min(parked_at) FROM {prefix}parked WHERE relay = ?1 AND reason <> 'delayed'),
		(SELECT count(*) FROM (SELECT 1 FROM {prefix}held WHERE relay = ?1 LIMIT 10001)),
		(SELECT min(since) FROM {prefix}held WHERE relay = ?1),
		(SELECT count(*) FROM (SELECT 1 FROM {prefix}dead WHERE state = 'open' AND relay = ?1 LIMIT 10001)),
		(SELECT max(died_at) FROM (SELECT died_at FROM {prefix}dead WHERE state = 'open' AND relay = ?1 ORDER BY number LIMIT 1))`
	ownersSQL = `SELECT owner, host, version, started_at, seen_at, alive_until > ?2, destination FROM {prefix}relays WHERE relay = ?1 AND member
		ORDER BY started_at, owner`
)

// sizeSQL returns the size of the file. The sizes of tables could be told only by reading them.
const sizeSQL = `SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()`

// Status implements store.StatusReader.
func (s *Store) Status(ctx context.Context) (store.Status, error) {
	var rows stored.StatusRows
	err := s.read(ctx, "status", func(t txn) (err error) {
		rows = stored.StatusRows{Now: stored.Time(t.now)}
		if err := t.get(ctx, partitionsSQL, nil, &rows.Partitions); err != nil {
			return err
		}
		if rows.Topics, err = t.filters(ctx); err != nil {
			return err
		}
		if rows.Pauses, err = t.records().ListRecords(ctx, stored.Pauses); err != nil {
			return err
		}
		file := store.TableSize{Table: store.TableFile}
		if err = t.get(ctx, sizeSQL, nil, &file.Bytes); err != nil {
			return err
		}
		rows.Tables = append(rows.Tables, file)
		return stored.StatusSQL{
			Known: knownSQL, Exceptions: exceptionsSQL, Cursors: cursorsSQL, Processes: ownersSQL, Unrouted: unroutedSQL,
			More: []any{s.incarnation.text}, Undelivered: undelivered,
		}.Read(ctx, t.query, t.now, &rows)
	})
	return rows.Status(), err
}

func undelivered(ctx context.Context, q stored.Query, c *stored.CursorRow, _ string, limit int64) (n int64, oldest sql.Null[int64], err error) {
	args := []any{c.Relay, c.Partition, c.Position}
	if err = q.Get(ctx, backlogSQL, append(args, limit), &n); err == nil {
		err = q.Get(ctx, oldestSQL, args, &oldest)
	}
	return n, oldest, err
}
