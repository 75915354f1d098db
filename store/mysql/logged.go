package mysqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	// loggedSQL: ?1 relay, after ?2, up to ?3, ?4 rows. Rows of no partition close gaps. The last column says that the relay has parked
	// the message or has a dead letter of it.
	loggedSQL = `SELECT l.seq, l.partition_id, l.id, l.topic, l.message_key, l.type, l.tenant, l.created_at,
			EXISTS (SELECT 1 FROM {prefix}parked p WHERE p.relay = ?1 AND p.seq = l.seq)
			OR EXISTS (SELECT 1 FROM {prefix}dead d WHERE d.relay = ?1 AND d.partition_id = l.partition_id AND d.seq = l.seq AND d.state <> 'redriven')
		FROM {prefix}log l FORCE INDEX (PRIMARY) WHERE l.seq > ?2 AND l.seq <= ?3 ORDER BY l.seq LIMIT ?4`
	placesOfSQL       = placesSQL + ` AND relay = ?`
	logEndSQL         = `SELECT COALESCE(MAX(seq), 0) FROM {prefix}log`
	logPositionSQL    = `SELECT COALESCE(MAX(position), 0) FROM {prefix}cursors WHERE relay = ?`
	countAllParkedSQL = `SELECT COUNT(*) FROM (SELECT 1 FROM {prefix}parked WHERE relay = ? LIMIT ?) p`

	// keepReplayedSQL keeps messages from being erased until the transaction ends: its copies are erased after it, or there are none.
	keepReplayedSQL = `SELECT seq FROM {prefix}log WHERE seq IN ? LOCK IN SHARE MODE`

	// replayedKeysSQL holds the keys of messages: ?1 relay, ?2 sequences, ?3 now. It locks those that are held already.
	replayedKeysSQL = `INSERT INTO {prefix}held (relay, message_key, partition_id, seq, reason, cause, attempts, since, due_at)
		SELECT ?1, message_key, partition_id, MIN(seq), 'replayed', '', 0, ?3, ?3 FROM {prefix}log l
		WHERE seq IN ?2 AND message_key <> '' AND ` + replayableSQL + ` GROUP BY message_key, partition_id ORDER BY message_key
		ON DUPLICATE KEY UPDATE relay = VALUES(relay)`
	// parkReplayedSQL: ?1 relay, ?2 sequences, ?3 now, ?4 headers, ?5 history.
	parkReplayedSQL = `INSERT INTO {prefix}parked (` + copiedColumns + `)
		SELECT ?1, partition_id, seq, {replayed}, 'replayed', 0, IF(message_key = '', ?3, NULL), ?3, 0, ?5
		FROM {prefix}log l WHERE seq IN ?2 AND ` + replayableSQL + ` ORDER BY seq`
	// replayableSQL: the settlements of the relay have ended, so that a message that was parked is parked still, or dead-lettered, or
	// delivered.
	replayableSQL = `l.type <> 'postrider.erased' AND NOT EXISTS (SELECT 1 FROM {prefix}dead d WHERE d.relay = ?1
		AND d.partition_id = l.partition_id AND d.seq = l.seq AND d.state <> 'redriven')`
)

// replayedColumns are the messageColumns with the headers of a replay. Headers are stored as bytes.
var replayedColumns = strings.NewReplacer("{replayed}", strings.Replace(messageColumns, "headers",
	"IF(JSON_VALID(CONVERT(headers USING utf8mb4)), JSON_MERGE_PATCH(CONVERT(headers USING utf8mb4), CONVERT(?4 USING utf8mb4)), headers)", 1))

// Logged implements store.LogReader.
func (r records) Logged(ctx context.Context, q store.LogQuery) (store.LogPage, error) {
	places := make(map[int]place)
	err := r.each(ctx, placesOfSQL, []any{q.Relay}, func(rows *sql.Rows) error {
		var partition int
		var at place
		var text string
		err := rows.Scan(&partition, &at.position, &text)
		if err == nil {
			at.gaps, err = parseGaps(text)
		}
		places[partition] = at
		return err
	})
	if err != nil {
		return store.LogPage{}, err
	}
	page, read := store.LogPage{Last: q.UpTo}, 0
	err = r.each(ctx, loggedSQL, []any{q.Relay, q.After, q.UpTo, q.Limit}, func(rows *sql.Rows) error {
		var m store.LoggedMessage
		var created int64
		var elsewhere bool
		err := rows.Scan(&m.Sequence, &m.Partition, &m.ID, &m.Topic, &m.Key, &m.Type, &m.Tenant, &created, &elsewhere)
		at := places[m.Partition]
		m.CreatedAt, m.Delivered = stored.Time(created), m.Sequence <= at.position && !at.gaps.contains(m.Sequence) && !elsewhere
		if m.Partition >= 0 {
			page.Messages = append(page.Messages, m)
		}
		if read++; read == q.Limit {
			page.Last = m.Sequence
		}
		return err
	})
	return page, err
}

// ParkReplayed implements store.LogWriter. The cursors of the partitions stand for the leases, and whoever parks messages locks them.
func (r records) ParkReplayed(ctx context.Context, m store.ReplayedMessages) (int, error) {
	partitions, sequences := m.Places()
	locked, err := stored.Column[int](ctx, r.txn.query, lockCursorsSQL, m.Relay, partitions)
	if err != nil || len(locked) < len(slices.Compact(slices.Sorted(slices.Values(partitions)))) { // the relay was removed meanwhile
		return 0, err
	}
	parked, err := r.lockParked(ctx, m.Relay, sequences)
	if err != nil {
		return 0, err
	}
	sequences = slices.DeleteFunc(sequences, func(seq int64) bool { _, is := parked[seq]; return is })
	if len(sequences) == 0 {
		return 0, nil
	}
	if _, err := stored.Column[int64](ctx, r.txn.query, keepReplayedSQL, sequences); err != nil {
		return 0, err
	}
	if _, err := r.exec(ctx, replayedKeysSQL, m.Relay, sequences, r.now); err != nil {
		return 0, err
	}
	headers, err := json.Marshal(m.Headers)
	if err != nil {
		return 0, err
	}
	n, err := r.exec(ctx, replayedColumns.Replace(parkReplayedSQL), m.Relay, sequences, r.now, string(headers), r.addEntry("[]", 0, m.Entry))
	return int(n), err
}
