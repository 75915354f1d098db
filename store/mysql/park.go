package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// parkedState holds what a settlement needs of a parked row.
type parkedState struct {
	attempts int
	history  string
	write    *parkedWrite // not written yet
}

// parkedWrite is the last entry of a message to be copied from the log, or that is parked already.
type parkedWrite struct {
	store.ParkOutcome
	history string
}

const parkedStateSQL = `SELECT seq, attempts, history FROM {prefix}parked FORCE INDEX (PRIMARY) WHERE relay = ? AND seq IN ? ORDER BY seq FOR UPDATE`

// parkedRows locks the parked rows that a settlement affects.
func (t txn) parkedRows(ctx context.Context, name string, st store.Settlement) (map[int64]parkedState, error) {
	var seqs []int64
	for _, p := range st.Parked {
		seqs = append(seqs, p.Sequence)
	}
	for _, d := range st.Dead {
		seqs = append(seqs, d.Sequence)
	}
	return t.lockParked(ctx, name, seqs)
}

func (t txn) lockParked(ctx context.Context, name string, seqs []int64) (map[int64]parkedState, error) {
	out := make(map[int64]parkedState)
	if len(seqs) == 0 {
		return out, nil
	}
	err := t.each(ctx, parkedStateSQL, []any{name, seqs}, func(rows *sql.Rows) error {
		var seq int64
		var p parkedState
		err := rows.Scan(&seq, &p.attempts, &p.history)
		out[seq] = p
		return err
	})
	return out, err
}

const (
	copiedColumns = `relay, partition_id, seq, ` + messageColumns + `, reason, attempts, due_at, parked_at, redrives, history`
	// parkLogSQL copies messages from the log: %s are rows of parkingRow.
	parkLogSQL = `INSERT INTO {prefix}parked (` + copiedColumns + `)
		SELECT ?1, partition_id, seq, ` + messageColumns + `, new_reason, new_attempts, new_due_at, ?3, 0, new_history
		FROM (%s) i STRAIGHT_JOIN {prefix}log l ON l.seq = i.new_seq WHERE l.partition_id = ?2`
	// parkAgainSQL changes parked messages: %s are rows of parkingRow.
	parkAgainSQL = `UPDATE (%s) i STRAIGHT_JOIN {prefix}parked p FORCE INDEX (PRIMARY) ON p.relay = ?1 AND p.seq = i.new_seq
		SET p.reason = new_reason, p.attempts = new_attempts, p.due_at = new_due_at, p.history = new_history`
	parkingRow = `SELECT ? AS new_seq, ? AS new_reason, ? AS new_attempts, ? AS new_due_at, ? AS new_history`
	inLogSQL   = `SELECT seq FROM {prefix}log WHERE partition_id = ? AND seq IN ?`
)

// errNotInLog refuses a settlement that would lose a message.
var errNotInLog = errors.New("it is not in the log of this partition")

// park parks messages. If a message has several entries, the last one counts, and each is added to its history.
func (t txn) park(ctx context.Context, name string, st store.Settlement, rows map[int64]parkedState) error {
	var fromLog, again []*parkedWrite
	for _, p := range st.Parked {
		row, found := rows[p.Sequence]
		if !found && !p.FromLog {
			continue
		}
		if row.write == nil {
			row.write = &parkedWrite{}
			if found {
				again = append(again, row.write)
			} else {
				row.history, fromLog = "[]", append(fromLog, row.write)
			}
		}
		row.attempts, row.history = p.Attempts, t.addEntry(row.history, attemptOf(p), p.Cause)
		*row.write = parkedWrite{p, row.history}
		rows[p.Sequence] = row
	}
	if _, err := t.execRows(ctx, parkAgainSQL, t.parkRows(again), name); err != nil {
		return err
	}
	n, err := t.execRows(ctx, parkLogSQL, t.parkRows(fromLog), name, st.Partition, t.now)
	if err != nil || int(n) == len(fromLog) {
		return err
	}
	seqs := make([]int64, len(fromLog))
	for i, p := range fromLog {
		seqs[i] = p.Sequence
	}
	return t.missing(ctx, st.Partition, seqs)
}

func (t txn) parkRows(parked []*parkedWrite) []string {
	rows := make([]string, len(parked))
	for i, p := range parked {
		rows[i] = render(parkingRow, []any{p.Sequence, string(p.Reason), p.Attempts, t.due(p.ParkOutcome), p.history})
	}
	return rows
}

// missing names the first of messages that is not in the log of a partition. Errors: errNotInLog.
func (t txn) missing(ctx context.Context, partition int, seqs []int64) error {
	found, err := stored.Column[int64](ctx, t.query, inLogSQL, partition, seqs)
	known := set(found)
	for _, seq := range seqs {
		if err == nil && !known[seq] {
			err = fmt.Errorf("message %d: %w", seq, errNotInLog)
		}
	}
	return err
}

// due returns when a parked message is due, NULL for one that is queued after its key's blocking message.
func (t txn) due(p store.ParkOutcome) sql.Null[int64] {
	return sql.Null[int64]{V: t.now + p.After.Microseconds(), Valid: !p.Waits}
}

// attemptOf returns the number of the attempt that an entry of the history describes, 0 if it describes none.
func attemptOf(p store.ParkOutcome) int {
	if p.Reason == store.ParkRetry {
		return p.Attempts
	}
	return 0
}

// addEntry appends an entry to a history, unless there is no cause. It does not repeat the last entry if neither is an attempt: a
// message may be postponed often. A history that cannot be read is replaced.
func (t txn) addEntry(history string, attempt int, cause string) string {
	if cause == "" {
		return history
	}
	entries, _ := stored.History(history)
	entry := postrider.AttemptInfo{Attempt: attempt, At: stored.Time(t.now), Cause: stored.Cause(cause)}
	if n := len(entries); attempt == 0 && n > 0 && entries[n-1].Attempt == 0 && entries[n-1].Cause == entry.Cause {
		return history
	}
	return encodeHistory(append(entries, entry))
}
