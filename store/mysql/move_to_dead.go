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
	// The parameters of both: ?1 relay, ?2 now, ?3 partition; %s are rows of dyingRow.
	deadFromParkedSQL = `INSERT INTO {prefix}dead (` + deadCopyColumns + `, resolved_at)
		SELECT relay, partition_id, seq, ` + messageColumns + `, new_attempts, redrives, new_history, ` + deadNewColumns + `
		FROM (%s) i STRAIGHT_JOIN {prefix}parked p FORCE INDEX (PRIMARY) ON p.relay = ?1 AND p.seq = i.new_seq`
	deadFromLogSQL = `INSERT INTO {prefix}dead (` + deadCopyColumns + `, resolved_at)
		SELECT ?1, partition_id, seq, ` + messageColumns + `, new_attempts, 0, new_history, ` + deadNewColumns + `
		FROM (%s) i STRAIGHT_JOIN {prefix}log l ON l.seq = i.new_seq WHERE l.partition_id = ?3`
	deadNewColumns = `new_reason, new_cause, new_fingerprint, ?2, new_state, new_resolved_by, new_resolution, new_resolved_at`
	dyingRow       = `SELECT ? AS new_seq, ? AS new_attempts, ? AS new_history, ? AS new_reason, ? AS new_cause, ? AS new_fingerprint,
		? AS new_state, ? AS new_resolved_by, ? AS new_resolution, ? AS new_resolved_at`
	unparkSQL = `DELETE p FROM {prefix}parked p FORCE INDEX (PRIMARY) WHERE relay = ? AND seq = ?`
)

// deadLetter moves messages to the dead letters. rows holds the locked parked rows.
func (t txn) deadLetter(ctx context.Context, name string, st store.Settlement, rows map[int64]parkedState) error {
	var fromParked, fromLog []string
	var parked, logged []int64
	for _, d := range st.Dead {
		if row, found := rows[d.Sequence]; found {
			fromParked, parked = append(fromParked, t.dyingRow(name, d, row.history)), append(parked, d.Sequence)
			delete(rows, d.Sequence)
		} else if d.FromLog {
			fromLog, logged = append(fromLog, t.dyingRow(name, d, "[]")), append(logged, d.Sequence)
		}
	}
	if _, err := t.execRows(ctx, deadFromParkedSQL, fromParked, name, t.now); err != nil {
		return err
	}
	if len(parked) > 0 {
		if _, err := t.exec(ctx, removeSQL, name, parked); err != nil {
			return err
		}
	}
	n, err := t.execRows(ctx, deadFromLogSQL, fromLog, name, t.now, st.Partition)
	if err != nil || int(n) == len(fromLog) {
		return err
	}
	return t.missing(ctx, st.Partition, logged)
}

func (t txn) dyingRow(name string, d store.DeadOutcome, history string) string {
	cause := stored.Cause(d.Cause)
	args := []any{d.Sequence, d.Attempts, t.addEntry(history, d.Attempts, d.Cause), d.Reason, cause, store.Fingerprint(cause)}
	return render(dyingRow, append(args, stored.Resolution(d.Discarded, name, d.Reason, t.now)...))
}

// encodeHistory encodes the last stored.KeptEntries entries of a history.
func encodeHistory(entries []postrider.AttemptInfo) string {
	text, err := json.Marshal(entries[max(0, len(entries)-stored.KeptEntries):])
	if err != nil {
		panic(err) // numbers, database times and strings always marshal
	}
	return string(text)
}
