package mysqlstore

import (
	"context"
	"database/sql"
	"slices"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	// erasedSQL empties the columns of messages that the log and the dead letters have in common: see store.Erased.
	erasedSQL = `message_key = '', type = 'postrider.erased', subject = '', tenant = '', schema_version = 0, aggregate_version = 0,
		content_type = 'application/octet-stream', headers = '{}', correlation_id = '', causation_id = '', payload = '', available_at = 0`
	// erasableSQL is a store.EraseFilter: ?1 key, ?2 tenant, ?3 message ID.
	erasableSQL = `type <> 'postrider.erased' AND (?1 = '' OR message_key = ?1) AND (?2 = '' OR tenant = ?2) AND (?3 = '' OR id = ?3)`

	// keepRelaysSQL keeps new relays from beginning, so that none reads a message while it is erased.
	keepRelaysSQL = floorSQL + ` FOR UPDATE`
	// cursorsOfSQL locks the cursors of the relays in some partitions.
	cursorsOfSQL = `SELECT relay, partition_id, position, gaps FROM {prefix}cursors WHERE kind = 'relay' AND partition_id IN ?
		ORDER BY relay, partition_id FOR UPDATE`
	endLeasesSQL     = `UPDATE {prefix}cursors SET token = '' WHERE relay = ? AND partition_id IN ?`
	eraseLoggedSQL   = `UPDATE {prefix}log SET ` + erasedSQL + ` WHERE seq IN ? AND partition_id >= 0 AND type <> 'postrider.erased'`
	eraseAttemptsSQL = `DELETE FROM {prefix}attempts WHERE message_id IN ?`

	// erasableParkedSQL: ?4 limit.
	erasableParkedSQL = `SELECT relay, partition_id, seq, message_key, id FROM {prefix}parked WHERE ` + erasableSQL + ` ORDER BY relay, seq LIMIT ?4`
	// erasableDeadSQL: ?4 limit.
	erasableDeadSQL  = `SELECT number, id FROM {prefix}dead WHERE state <> 'open' AND ` + erasableSQL + ` ORDER BY number LIMIT ?4 FOR UPDATE`
	eraseDeadSQL     = `UPDATE {prefix}dead SET cause = '', fingerprint = '', history = '[]', edits = 0, ` + erasedSQL + ` WHERE number IN ?`
	countErasableSQL = `SELECT (SELECT COUNT(*) FROM {prefix}parked WHERE ` + erasableSQL + `), (SELECT COUNT(*) FROM {prefix}dead
		WHERE ` + erasableSQL + `)`
)

// EraseLogged implements store.EraseWriter.
func (r records) EraseLogged(ctx context.Context, messages []store.LoggedMessage) (int, error) {
	var floor int64
	if err := r.get(ctx, keepRelaysSQL, nil, &floor); err != nil || len(messages) == 0 {
		return 0, err
	}
	var partitions []int
	var sequences []int64
	var ids []string
	for i := range messages {
		m := &messages[i]
		partitions, sequences, ids = append(partitions, m.Partition), append(sequences, m.Sequence), append(ids, m.ID)
	}
	if err := r.endUndelivered(ctx, partitions, sequences); err != nil {
		return 0, err
	}
	if _, err := r.exec(ctx, eraseAttemptsSQL, ids); err != nil {
		return 0, err
	}
	n, err := r.exec(ctx, eraseLoggedSQL, sequences)
	return int(n), err
}

// endUndelivered ends the leases of the relays that have not delivered one of the messages.
func (r records) endUndelivered(ctx context.Context, partitions []int, sequences []int64) error {
	waiting := make(map[string][]int) // partitions by relay
	err := r.each(ctx, cursorsOfSQL, []any{slices.Compact(slices.Sorted(slices.Values(partitions)))}, func(rows *sql.Rows) error {
		var relay, text string
		var partition int
		var position int64
		if err := rows.Scan(&relay, &partition, &position, &text); err != nil {
			return err
		}
		missing, err := parseGaps(text)
		for i, seq := range sequences {
			if partitions[i] == partition && (seq > position || missing.contains(seq)) {
				waiting[relay] = append(waiting[relay], partition)
				break
			}
		}
		return err
	})
	for relay, of := range waiting {
		if err == nil {
			_, err = r.exec(ctx, endLeasesSQL, relay, of)
		}
	}
	return err
}

// EraseParked implements store.EraseWriter. The cursors of the partitions stand for the leases.
func (r records) EraseParked(ctx context.Context, f store.EraseFilter, limit int) (out []store.ErasedParked, err error) {
	partitions, sequences, ids := make(map[string][]int), make(map[string][]int64), []string{}
	err = r.each(ctx, erasableParkedSQL, []any{f.Key, f.Tenant, f.MessageID, limit}, func(rows *sql.Rows) error {
		var p store.ErasedParked
		var partition int
		var seq int64
		var id string
		err := rows.Scan(&p.Relay, &partition, &seq, &p.Key, &id)
		partitions[p.Relay], sequences[p.Relay] = append(partitions[p.Relay], partition), append(sequences[p.Relay], seq)
		ids, out = append(ids, id), append(out, p)
		return err
	})
	if err != nil || len(out) == 0 {
		return nil, err
	}
	for i, p := range out {
		if i > 0 && out[i-1].Relay == p.Relay {
			continue
		}
		if _, err := stored.Column[int](ctx, r.txn.query, lockCursorsSQL, p.Relay, partitions[p.Relay]); err != nil {
			return nil, err
		}
		if _, err := r.exec(ctx, endLeasesSQL, p.Relay, partitions[p.Relay]); err != nil {
			return nil, err
		}
		if _, err := r.exec(ctx, deleteParkedSQL, p.Relay, sequences[p.Relay]); err != nil {
			return nil, err
		}
	}
	_, err = r.exec(ctx, eraseAttemptsSQL, ids)
	return out, err
}

// EraseDead implements store.EraseWriter.
func (r records) EraseDead(ctx context.Context, f store.EraseFilter, limit int) (int, error) {
	numbers, ids, err := stored.Pairs[int64, string](ctx, r.txn.query, erasableDeadSQL, f.Key, f.Tenant, f.MessageID, limit)
	if err != nil || len(numbers) == 0 {
		return 0, err
	}
	if _, err := r.exec(ctx, removeEditsSQL, numbers); err != nil {
		return 0, err
	}
	if _, err := r.exec(ctx, eraseAttemptsSQL, ids); err != nil {
		return 0, err
	}
	_, err = r.exec(ctx, eraseDeadSQL, numbers)
	return len(numbers), err
}

// CountErasable implements store.EraseReader.
func (r records) CountErasable(ctx context.Context, f store.EraseFilter) (parked, dead int64, err error) {
	err = r.get(ctx, countErasableSQL, []any{f.Key, f.Tenant, f.MessageID}, &parked, &dead)
	return parked, dead, err
}
