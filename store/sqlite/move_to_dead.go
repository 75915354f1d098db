package sqlite

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// Dead letters are copied inside the database: payloads do not pass through the program.
const (
	deadCopyColumns = `relay, partition, seq, ` + messageColumns + `, attempts, redrives, history, reason, cause, died_at, state`
	resolvedColumns = `, resolved_by, resolution, resolved_at`
	// The parameters: ?1 relay, ?2 seq, ?3 partition, ?4 reason, ?5 cause, ?6 attempts (NULL: those of the parked row),
	// ?7 now, ?8 history entry or NULL, ?9 to ?12 those of stored.Resolution.
	deadFromParkedSQL = `INSERT INTO {prefix}dead (` + deadCopyColumns + resolvedColumns + `)
		SELECT relay, partition, seq, ` + messageColumns + `, coalesce(?6, attempts), redrives, ` + historySQL + `,
			?4, ?5, ?7, ?9, ?10, ?11, ?12
		FROM {prefix}parked WHERE relay = ?1 AND seq = ?2 AND partition = ?3`
	deadFromLogSQL = `INSERT INTO {prefix}dead (` + deadCopyColumns + resolvedColumns + `)
		SELECT ?1, partition, seq, ` + messageColumns + `, ?6, 0, iif(?8 IS NULL, '[]', json_array(json(?8))), ?4, ?5, ?7,
			?9, ?10, ?11, ?12
		FROM {prefix}log WHERE seq = ?2 AND partition = ?3`
	unparkSQL = `DELETE FROM {prefix}parked WHERE relay = ? AND seq = ?`
)

// deadLetter applies one entry of a settlement.
func (t txn) deadLetter(ctx context.Context, name string, partition int, d *store.DeadOutcome) error {
	entry, err := t.entry(d.Attempts, d.Cause)
	if err != nil {
		return err
	}
	b := toDead{
		relay: name, partition: partition, seq: d.Sequence, reason: d.Reason, cause: d.Cause,
		attempts: sql.Null[int]{V: d.Attempts, Valid: true}, entry: entry, discarded: d.Discarded,
	}
	moved, err := t.moveToDead(ctx, b)
	if err != nil || moved || !d.FromLog {
		return err
	}
	n, err := t.exec(ctx, deadFromLogSQL, b.args(t.now)...)
	if n == 0 && err == nil {
		return errNotInLog
	}
	return err
}

// toDead is a message to be dead-lettered.
type toDead struct {
	relay         string
	partition     int
	seq           int64
	reason, cause string
	attempts      sql.Null[int]
	entry         sql.Null[string]
	discarded     bool
}

func (b toDead) args(now int64) []any {
	args := []any{b.relay, b.seq, b.partition, b.reason, stored.Cause(b.cause), b.attempts, now, b.entry}
	return append(args, stored.Resolution(b.discarded, b.relay, b.reason, now)...)
}

// moveToDead moves a parked message to the dead letters, and reports whether there was one.
func (t txn) moveToDead(ctx context.Context, b toDead) (bool, error) {
	n, err := t.exec(ctx, deadFromParkedSQL, b.args(t.now)...)
	if err != nil || n == 0 {
		return false, err
	}
	_, err = t.exec(ctx, unparkSQL, b.relay, b.seq)
	return true, err
}
