package sqlite

import (
	"context"
	"database/sql"
	"strings"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	// loggedSQL: ?1 relay, after ?2, up to ?3, ?4 rows.
	loggedSQL = `SELECT l.seq, l.partition, l.id, l.topic, l.key, l.type, l.tenant, l.created_at,
			coalesce(l.seq <= c.position, 0)
			AND NOT EXISTS (SELECT 1 FROM {prefix}parked p WHERE p.relay = ?1 AND p.seq = l.seq)
			AND NOT EXISTS (SELECT 1 FROM {prefix}dead d WHERE d.relay = ?1 AND d.partition = l.partition AND d.seq = l.seq AND d.state <> 'redriven')
		FROM {prefix}log l LEFT JOIN {prefix}cursors c ON c.relay = ?1 AND c.partition = l.partition
		WHERE l.seq > ?2 AND l.seq <= ?3 ORDER BY l.seq LIMIT +?4`
	logEndSQL         = `SELECT coalesce(max(seq), 0) FROM {prefix}log`
	logPositionSQL    = `SELECT coalesce(max(position), 0) FROM {prefix}cursors WHERE relay = ?`
	countAllParkedSQL = `SELECT count(*) FROM (SELECT 1 FROM {prefix}parked WHERE relay = ? LIMIT +?)`

	// replayedKeysSQL holds the keys of messages that are not held: ?1 relay, ?2 sequences, ?3 now.
	replayedKeysSQL = `INSERT INTO {prefix}held (relay, key, partition, seq, reason, cause, attempts, since, due_at)
		SELECT ?1, key, partition, min(seq), 'replayed', '', 0, ?3, ?3 FROM {prefix}log l
		WHERE seq IN (SELECT value FROM json_each(?2)) AND key <> '' AND ` + replayableSQL + ` GROUP BY key, partition ON CONFLICT (relay, key) DO NOTHING`
	// parkReplayedSQL: ?1 relay, ?2 sequences, ?3 now, ?4 headers, ?5 history entry.
	parkReplayedSQL = `INSERT INTO {prefix}parked (` + copiedColumns + `)
		SELECT ?1, partition, seq, {replayed}, 'replayed', 0, iif(key = '', ?3, NULL), ?3, 0, json_array(json(?5))
		FROM {prefix}log l WHERE seq IN (SELECT value FROM json_each(?2)) AND ` + replayableSQL + ` ORDER BY seq ON CONFLICT (relay, seq) DO NOTHING`
	replayableSQL = `l.type <> 'postrider.erased' AND NOT EXISTS (SELECT 1 FROM {prefix}dead d WHERE d.relay = ?1
		AND d.partition = l.partition AND d.seq = l.seq AND d.state <> 'redriven')`
)

// replayedColumns are the messageColumns with the headers of a replay.
var replayedColumns = strings.NewReplacer("{replayed}",
	strings.Replace(messageColumns, "headers", "iif(json_valid(headers), json_patch(headers, ?4), headers)", 1))

// Logged implements store.LogReader.
func (r records) Logged(ctx context.Context, q store.LogQuery) (store.LogPage, error) {
	page := store.LogPage{Last: q.UpTo}
	err := r.each(ctx, loggedSQL, []any{q.Relay, q.After, q.UpTo, q.Limit}, func(rows *sql.Rows) error {
		var m store.LoggedMessage
		var created int64
		err := rows.Scan(&m.Sequence, &m.Partition, &m.ID, &m.Topic, &m.Key, &m.Type, &m.Tenant, &created, &m.Delivered)
		m.CreatedAt = stored.Time(created)
		page.Messages = append(page.Messages, m)
		return err
	})
	if n := len(page.Messages); n == q.Limit && n > 0 {
		page.Last = page.Messages[n-1].Sequence
	}
	return page, err
}

// ParkReplayed implements store.LogWriter: nobody else writes until the transaction ends.
func (r records) ParkReplayed(ctx context.Context, m store.ReplayedMessages) (int, error) {
	entry, err := stored.Entry(0, r.now, m.Entry)
	if err != nil {
		return 0, err
	}
	_, sequences := m.Places()
	if _, err := r.exec(ctx, replayedKeysSQL, m.Relay, list(sequences), r.now); err != nil {
		return 0, err
	}
	headers := list([]map[string]string{m.Headers})
	n, err := r.exec(ctx, replayedColumns.Replace(parkReplayedSQL), m.Relay, list(sequences), r.now, headers[1:len(headers)-1], entry)
	return int(n), err
}
