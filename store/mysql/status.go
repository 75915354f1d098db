package mysqlstore

import (
	"context"
	"database/sql"
	"strings"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.StatusReader = (*Store)(nil)

// Each count of a relay reads little more than store.CountLimit (10,000) index entries.
const (
	knownSQL   = `SELECT relay FROM {prefix}cursors UNION SELECT relay FROM {prefix}relays ORDER BY relay`
	cursorsSQL = `SELECT c.partition_id, IF(c.incarnation = {present} AND r.owner <> '', r.owner, ''), COALESCE(r.alive_until, 0), c.number,
		c.kind, c.position, c.settled_at, c.delivered, c.failed, c.gaps
		FROM {prefix}cursors c LEFT JOIN {prefix}relays r ON r.relay = c.relay AND r.owner = c.owner AND r.alive_until > ?2
		WHERE c.relay = ?1 ORDER BY c.partition_id`
	backlogSQL = `SELECT COUNT(*) FROM (SELECT 1 FROM {prefix}log l WHERE l.partition_id = ?2 AND (%s)
		AND NOT EXISTS (SELECT 1 FROM {prefix}parked p WHERE p.relay = ?1 AND p.seq = l.seq) LIMIT ?3) b`
	oldestSQL = `SELECT l.created_at FROM {prefix}log l WHERE l.partition_id = ?2 AND (%s)
		AND NOT EXISTS (SELECT 1 FROM {prefix}parked p WHERE p.relay = ?1 AND p.seq = l.seq) ORDER BY l.seq LIMIT 1`
	exceptionsSQL = `SELECT
		(SELECT COUNT(*) FROM (SELECT 1 FROM {prefix}parked WHERE relay = ?1 LIMIT 10001) a),
		(SELECT MIN(parked_at) FROM {prefix}parked WHERE relay = ?1),
		(SELECT MIN(parked_at) FROM {prefix}parked WHERE relay = ?1 AND reason <> 'delayed'),
		(SELECT COUNT(*) FROM (SELECT 1 FROM {prefix}held WHERE relay = ?1 LIMIT 10001) b),
		(SELECT MIN(since) FROM {prefix}held WHERE relay = ?1),
		(SELECT COUNT(*) FROM (SELECT 1 FROM {prefix}dead WHERE state = 'open' AND relay = ?1 LIMIT 10001) c),
		(SELECT died_at FROM {prefix}dead WHERE state = 'open' AND relay = ?1 ORDER BY number LIMIT 1)`
	ownersSQL = `SELECT owner, host, version, started_at, seen_at, alive_until > ?2, destination FROM {prefix}relays WHERE relay = ?1 AND member
		ORDER BY started_at, owner`
)

// Status implements store.StatusReader.
func (s *Store) Status(ctx context.Context) (store.Status, error) {
	var rows stored.StatusRows
	err := s.read(ctx, "status", func(t txn) (err error) {
		rows = stored.StatusRows{Now: stored.Time(t.now), Partitions: t.partitions}
		if rows.Topics, err = t.filters(ctx); err != nil {
			return err
		}
		if rows.Pauses, err = t.records().ListRecords(ctx, stored.Pauses); err != nil {
			return err
		}
		if rows.Tables, err = t.sizes(ctx); err != nil {
			return err
		}
		return stored.StatusSQL{
			Known: knownSQL, Exceptions: exceptionsSQL, Cursors: cursorsSQL, Processes: ownersSQL, Unrouted: unroutedSQL, Undelivered: undelivered,
		}.Read(ctx, t.query, t.now, &rows)
	})
	return rows.Status(), err
}

func undelivered(ctx context.Context, q stored.Query, c *stored.CursorRow, text string, limit int64) (n int64, oldest sql.Null[int64], err error) {
	missing, err := parseGaps(text)
	if err != nil {
		return 0, oldest, err
	}
	args, open := []any{c.Relay, c.Partition}, ahead(c.Position, missing)
	if err := q.Get(ctx, strings.Replace(backlogSQL, `%s`, open, 1), append(args, limit), &n); err != nil || n == 0 {
		return 0, oldest, err
	}
	err = q.Get(ctx, strings.Replace(oldestSQL, `%s`, open, 1), args, &oldest)
	return n, oldest, stored.OrNone(err)
}
