package sqlite

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	// erasedSQL empties the columns of messages that the log and the dead letters have in common: see store.Erased.
	erasedSQL = `key = '', type = 'postrider.erased', subject = '', tenant = '', schema_version = 0, aggregate_version = 0,
		content_type = 'application/octet-stream', headers = '{}', correlation_id = '', causation_id = '', payload = x'', available_at = 0`
	// erasableSQL is a store.EraseFilter: ?1 key, ?2 tenant, ?3 message ID.
	erasableSQL = `type <> 'postrider.erased' AND ?1 IN ('', key) AND ?2 IN ('', tenant) AND ?3 IN ('', id)`

	// endUndeliveredSQL ends the leases of the relays that have not delivered one of the messages: ?1 sequences.
	endUndeliveredSQL = `UPDATE {prefix}cursors SET token = '' WHERE kind = 'relay' AND EXISTS (SELECT 1 FROM {prefix}log l
		WHERE l.seq IN (SELECT value FROM json_each(?1)) AND l.partition = {prefix}cursors.partition AND l.seq > {prefix}cursors.position)`
	eraseLoggedSQL   = `UPDATE {prefix}log SET ` + erasedSQL + ` WHERE seq IN (SELECT value FROM json_each(?)) AND type <> 'postrider.erased'`
	eraseAttemptsSQL = `DELETE FROM {prefix}attempts WHERE message_id IN (SELECT value FROM json_each(?))`

	// erasableParkedSQL: ?4 limit.
	erasableParkedSQL = `SELECT relay, partition, seq, key, id FROM {prefix}parked WHERE ` + erasableSQL + ` ORDER BY relay, seq LIMIT +?4`
	endLeaseSQL       = `UPDATE {prefix}cursors SET token = '' WHERE relay = ? AND partition = ?`
	eraseParkedSQL    = `DELETE FROM {prefix}parked WHERE relay = ? AND seq = ?`

	// erasableDeadSQL: ?4 limit.
	erasableDeadSQL = `SELECT number, id FROM {prefix}dead WHERE state <> 'open' AND ` + erasableSQL + ` ORDER BY number LIMIT +?4`
	eraseDeadSQL    = `UPDATE {prefix}dead SET cause = '', fingerprint = '', history = '[]', edits = 0, ` + erasedSQL + `
		WHERE number IN (SELECT value FROM json_each(?))`
	countErasableSQL = `SELECT (SELECT count(*) FROM {prefix}parked WHERE ` + erasableSQL + `), (SELECT count(*) FROM {prefix}dead
		WHERE ` + erasableSQL + `)`
)

// EraseLogged implements store.EraseWriter.
func (r records) EraseLogged(ctx context.Context, messages []store.LoggedMessage) (int, error) {
	var sequences []int64
	var ids []string
	for i := range messages {
		sequences, ids = append(sequences, messages[i].Sequence), append(ids, messages[i].ID)
	}
	if _, err := r.exec(ctx, endUndeliveredSQL, list(sequences)); err != nil {
		return 0, err
	}
	if _, err := r.exec(ctx, eraseAttemptsSQL, list(ids)); err != nil {
		return 0, err
	}
	n, err := r.exec(ctx, eraseLoggedSQL, list(sequences))
	return int(n), err
}

// EraseParked implements store.EraseWriter.
func (r records) EraseParked(ctx context.Context, f store.EraseFilter, limit int) (out []store.ErasedParked, err error) {
	type place struct {
		partition int
		seq       int64
	}
	var places []place
	var ids []string
	err = r.each(ctx, erasableParkedSQL, []any{f.Key, f.Tenant, f.MessageID, limit}, func(rows *sql.Rows) error {
		var p store.ErasedParked
		var at place
		var id string
		err := rows.Scan(&p.Relay, &at.partition, &at.seq, &p.Key, &id)
		out, places, ids = append(out, p), append(places, at), append(ids, id)
		return err
	})
	for i, at := range places {
		if err == nil {
			_, err = r.exec(ctx, endLeaseSQL, out[i].Relay, at.partition)
		}
		if err == nil {
			_, err = r.exec(ctx, eraseParkedSQL, out[i].Relay, at.seq)
		}
	}
	if err == nil && len(ids) > 0 {
		_, err = r.exec(ctx, eraseAttemptsSQL, list(ids))
	}
	return out, err
}

// EraseDead implements store.EraseWriter.
func (r records) EraseDead(ctx context.Context, f store.EraseFilter, limit int) (int, error) {
	numbers, ids, err := stored.Pairs[int64, string](ctx, r.txn.query, erasableDeadSQL, f.Key, f.Tenant, f.MessageID, limit)
	if err != nil || len(numbers) == 0 {
		return 0, err
	}
	if _, err := r.exec(ctx, removeEditsSQL, list(numbers)); err != nil {
		return 0, err
	}
	if _, err := r.exec(ctx, eraseAttemptsSQL, list(ids)); err != nil {
		return 0, err
	}
	_, err = r.exec(ctx, eraseDeadSQL, list(numbers))
	return len(numbers), err
}

// CountErasable implements store.EraseReader.
func (r records) CountErasable(ctx context.Context, f store.EraseFilter) (parked, dead int64, err error) {
	err = r.get(ctx, countErasableSQL, []any{f.Key, f.Tenant, f.MessageID}, &parked, &dead)
	return parked, dead, err
}
