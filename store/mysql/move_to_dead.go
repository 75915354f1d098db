package mysqlstore

import (
	"context"
	"encoding/json"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// Messages are copied to the dead letters inside the database; payloads do not pass through the client.
const (
	deadCopyColumns = `relay, partition_id, seq, ` + messageColumns + `, attempts, redrives, history, reason, cause, fingerprint, died_at,
		state, resolved_by, resolution`
	// The parameters: ?1 relay, ?2 seq, ?3 partition, ?4 reason, ?5 cause, ?6 its fingerprint, ?7 attempts, ?8 now, ?9 history,
	// ?10 to ?13 those of stored.Resolution.
	deadFromParkedSQL = `INSERT INTO {prefix}dead (` + deadCopyColumns + `, resolved_at)
		SELECT relay, partition_id, seq, ` + messageColumns + `, ?7, redrives, ?9, ?4, ?5, ?6, ?8, ?10, ?11, ?12, ?13
		FROM {prefix}parked WHERE relay = ?1 AND seq = ?2`
	deadFromLogSQL = `INSERT INTO {prefix}dead (` + deadCopyColumns + `, resolved_at)
		SELECT ?1, partition_id, seq, ` + messageColumns + `, ?7, 0, ?9, ?4, ?5, ?6, ?8, ?10, ?11, ?12, ?13
		FROM {prefix}log WHERE seq = ?2 AND partition_id = ?3`
	unparkSQL = `DELETE p FROM {prefix}parked p FORCE INDEX (PRIMARY) WHERE relay = ? AND seq = ?`
)

// deadLetter applies one entry of a settlement. rows holds the locked parked rows.
func (t txn) deadLetter(ctx context.Context, name string, partition int, d store.DeadOutcome, rows map[int64]parkedState) error {
	b := toDead{relay: name, partition: partition, seq: d.Sequence, reason: d.Reason, cause: d.Cause, attempts: d.Attempts, discarded: d.Discarded}
	if row, found := rows[d.Sequence]; found {
		b.history = t.addEntry(row.history, d.Attempts, d.Cause)
		delete(rows, d.Sequence)
		return t.moveToDead(ctx, b)
	}
	if !d.FromLog {
		return nil
	}
	b.history = t.addEntry("[]", d.Attempts, d.Cause)
	n, err := t.exec(ctx, deadFromLogSQL, b.args(t.now)...)
	if n == 0 && err == nil {
		return errNotInLog
	}
	return err
}

// toDead describes a message to move to the dead letters.
type toDead struct {
	relay         string
	partition     int
	seq           int64
	reason, cause string
	attempts      int
	history       string
	discarded     bool
}

func (b toDead) args(now int64) []any {
	cause := stored.Cause(b.cause)
	args := []any{b.relay, b.seq, b.partition, b.reason, cause, store.Fingerprint(cause), b.attempts, now, b.history}
	return append(args, stored.Resolution(b.discarded, b.relay, b.reason, now)...)
}

// moveToDead moves a parked message, whose row is locked, to the dead letters.
func (t txn) moveToDead(ctx context.Context, b toDead) error {
	if _, err := t.exec(ctx, deadFromParkedSQL, b.args(t.now)...); err != nil {
		return err
	}
	_, err := t.exec(ctx, unparkSQL, b.relay, b.seq)
	return err
}

// encodeHistory encodes the last stored.KeptEntries entries of a history.
func encodeHistory(entries []postrider.AttemptInfo) string {
	text, err := json.Marshal(entries[max(0, len(entries)-stored.KeptEntries):])
	if err != nil {
		panic(err) // numbers, database times and strings always marshal
	}
	return string(text)
}
