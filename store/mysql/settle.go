package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/relay"
)

const (
	// moveSQL moves cursors and counts, fenced, all in one statement: %s are rows of moveRow. The join reads the rows of cursors
	// in the order given, by primary key, and locks no others.
	moveSQL = `UPDATE (%s) i STRAIGHT_JOIN {prefix}cursors c ON c.relay = ?1 AND c.partition_id = i.partition_id
		SET c.position = IF(i.moved, i.position, c.position), c.gaps = IF(i.moved, i.gaps, c.gaps), c.settled_at = {now},
			c.delivered = c.delivered + i.delivered, c.failed = c.failed + i.failed
		WHERE c.owner = ?2 AND c.epoch = i.epoch`
	moveRow = `SELECT ? AS partition_id, ? AS epoch, ? AS moved, ? AS position, ? AS gaps, ? AS delivered, ? AS failed`
	mineSQL = `SELECT partition_id, epoch FROM {prefix}cursors WHERE relay = ? AND owner = ? AND partition_id IN ?`
	// fenceSQL locks leases in the order of the partitions, as everybody does who works on what is put aside.
	fenceSQL = `SELECT partition_id, epoch, position, gaps FROM {prefix}cursors WHERE relay = ? AND owner = ? AND partition_id IN ?
		ORDER BY partition_id FOR UPDATE`
	removeSQL = `DELETE p FROM {prefix}parked p FORCE INDEX (PRIMARY) WHERE relay = ? AND seq IN ?`
)

// Settle implements relay.LogStore. When only cursors move it is one statement; otherwise one transaction. MySQL waits for the
// disk at every commit unless the server is configured otherwise (innodb_flush_log_at_trx_commit).
func (s *Store) Settle(ctx context.Context, name string, owner relay.Owner, settlements []relay.Settlement) (relay.Settled, error) {
	var out relay.Settled
	settlements = slices.Clone(settlements)
	slices.SortStableFunc(settlements, func(a, b relay.Settlement) int { return cmp.Compare(a.Partition, b.Partition) })
	if !slices.ContainsFunc(settlements, touches) {
		return s.move(ctx, name, owner.ID, settlements)
	}
	err := s.write(ctx, "settle", func(t txn) error {
		out = relay.Settled{}
		leases, err := t.fence(ctx, name, owner.ID, settlements)
		if err != nil {
			return err
		}
		var mine []relay.Settlement
		for _, st := range settlements {
			l, ours := leases[st.Partition]
			if !ours || l.epoch != st.Epoch {
				out.Lost = append(out.Lost, st.Partition)
				continue
			}
			mine = append(mine, st)
			released, err := t.settle(ctx, name, st, l)
			if err != nil {
				return fmt.Errorf("partition %d: %w", st.Partition, err)
			}
			out.Released = append(out.Released, released...)
		}
		_, err = t.moveAll(ctx, name, owner.ID, mine)
		return err
	})
	if err != nil {
		return relay.Settled{}, err
	}
	return out, nil
}

// touches says whether a settlement does more than move a cursor.
func touches(st relay.Settlement) bool {
	return len(st.Parked)+len(st.Dead)+len(st.Removed)+len(st.Held)+len(st.Release) > 0
}

// move moves cursors alone. A lease that is ours afterwards was ours before: an epoch is given once.
func (s *Store) move(ctx context.Context, name, owner string, settlements []relay.Settlement) (out relay.Settled, err error) {
	if len(settlements) == 0 {
		return out, nil
	}
	var moved int64
	for try := 1; ; try++ {
		if moved, err = s.pooled().moveAll(ctx, name, owner, settlements); err == nil || try == tries || !s.cfg.passing(ctx, err) {
			break
		}
	}
	if err != nil || int(moved) == len(settlements) {
		return out, s.cfg.explain("settle", err)
	}
	var partitions []int
	for _, st := range settlements {
		partitions = append(partitions, st.Partition)
	}
	epochs := make(map[int]int64)
	err = s.pooled().each(ctx, mineSQL, []any{name, owner, partitions}, func(rows *sql.Rows) error {
		var p int
		var epoch int64
		err := rows.Scan(&p, &epoch)
		epochs[p] = epoch
		return err
	})
	for _, st := range settlements {
		if epoch, ours := epochs[st.Partition]; !ours || epoch != st.Epoch {
			out.Lost = append(out.Lost, st.Partition)
		}
	}
	return out, s.cfg.explain("settle", err)
}

// moveAll returns how many rows have changed. The time of settling makes that all of ours, but for a driver's clock of
// microseconds.
func (t txn) moveAll(ctx context.Context, name, owner string, settlements []relay.Settlement) (int64, error) {
	if len(settlements) == 0 {
		return 0, nil
	}
	rows := make([]string, len(settlements))
	for i, st := range settlements {
		rows[i] = render(moveRow, []any{st.Partition, st.Epoch, st.Moved, st.Cursor.Position, st.Cursor.Snapshot,
			st.DeliveredCount, st.FailedCount})
	}
	text := strings.Replace(moveSQL, `%s`, strings.Join(rows, ` UNION ALL `), 1)
	return t.exec(ctx, text, name, owner)
}

// leased is a lease that is locked.
type leased struct {
	epoch, position int64
	gaps            gaps
}

// passed says whether the stored cursor has a message behind it.
func (l leased) passed(seq int64) bool { return seq <= l.position && !l.gaps.contains(seq) }

func (t txn) fence(ctx context.Context, name, owner string, settlements []relay.Settlement) (map[int]leased, error) {
	var partitions []int
	for _, st := range settlements {
		partitions = append(partitions, st.Partition)
	}
	out := make(map[int]leased)
	err := t.each(ctx, fenceSQL, []any{name, owner, partitions}, func(rows *sql.Rows) error {
		var p int
		var l leased
		var text string
		err := rows.Scan(&p, &l.epoch, &l.position, &text)
		if err == nil {
			l.gaps, err = parseGaps(text)
		}
		out[p] = l
		return err
	})
	return out, err
}

// settle applies all of a settlement but its cursor, and returns the keys that are held no longer.
func (t txn) settle(ctx context.Context, name string, st relay.Settlement, l leased) ([]string, error) {
	rows, err := t.parkedRows(ctx, name, st)
	if err != nil {
		return nil, err
	}
	if err := t.park(ctx, name, st, rows, l); err != nil {
		return nil, fmt.Errorf("park messages: %w", err)
	}
	for _, d := range st.Dead {
		if err := t.deadLetter(ctx, name, st.Partition, d, rows, l); err != nil {
			return nil, fmt.Errorf("dead-letter message %d: %w", d.Sequence, err)
		}
	}
	if len(st.Removed) > 0 {
		if _, err := t.exec(ctx, removeSQL, name, st.Removed); err != nil {
			return nil, err
		}
	}
	for _, h := range st.Held {
		if err := t.hold(ctx, name, st.Partition, h); err != nil {
			return nil, fmt.Errorf("hold key %q: %w", h.Key, err)
		}
	}
	return t.release(ctx, name, st)
}

// parkedState is what a settlement needs to know of a parked row.
type parkedState struct {
	attempts, redrives int
	history            string
}

const parkedStateSQL = `SELECT seq, attempts, redrives, history FROM {prefix}parked FORCE INDEX (PRIMARY) WHERE relay = ? AND seq IN ? ORDER BY seq FOR UPDATE`

// parkedRows locks the parked rows that a settlement is about.
func (t txn) parkedRows(ctx context.Context, name string, st relay.Settlement) (map[int64]parkedState, error) {
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
		err := rows.Scan(&seq, &p.attempts, &p.redrives, &p.history)
		out[seq] = p
		return err
	})
	return out, err
}

const (
	copiedColumns = `relay, partition_id, seq, ` + messageColumns + `, reason, attempts, due_at, parked_at, redrives, history`
	// parkLogSQL copies messages from the log: %s are rows of parkLogRow. A message that has a dead letter was moved on by somebody.
	parkLogSQL = `INSERT INTO {prefix}parked (` + copiedColumns + `)
		SELECT ?1, partition_id, seq, ` + messageColumns + `, new_reason, new_attempts, new_due_at, ?3, 0, new_history
		FROM (%s) i STRAIGHT_JOIN {prefix}log l ON l.seq = i.new_seq
		WHERE l.partition_id = ?2 AND NOT EXISTS (
			SELECT 1 FROM {prefix}dead d WHERE d.relay = ?1 AND d.partition_id = ?2 AND d.seq = l.seq)`
	parkLogRow = `SELECT ? AS new_seq, ? AS new_reason, ? AS new_attempts, ? AS new_due_at, ? AS new_history`
	// settledSQL finds which messages are parked or have died.
	settledSQL = `SELECT seq FROM {prefix}parked WHERE relay = ?1 AND seq IN ?3
		UNION SELECT seq FROM {prefix}dead WHERE relay = ?1 AND partition_id = ?2 AND seq IN ?3`
	parkAgainSQL = `UPDATE {prefix}parked FORCE INDEX (PRIMARY) SET reason = ?3, attempts = ?4, due_at = ?5, history = ?6 WHERE relay = ?1 AND seq = ?2`
	// parkAtOnce is how many messages one statement copies.
	parkAtOnce = 250
)

// errNotInLog refuses a settlement that would lose a message.
var errNotInLog = errors.New("it is not in the log of this partition")

func (t txn) park(ctx context.Context, name string, st relay.Settlement, rows map[int64]parkedState, l leased) error {
	var fromLog []relay.Parked
	for _, p := range st.Parked {
		row, there := rows[p.Sequence]
		switch {
		case !there && p.FromLog:
			fromLog = append(fromLog, p)
			rows[p.Sequence] = parkedState{attempts: p.Attempts, history: t.addEntry("[]", attemptOf(p), p.Cause)}
		case there && row.redrives == p.Redrives:
			row.attempts = max(row.attempts, p.Attempts)
			row.history = t.addEntry(row.history, attemptOf(p), p.Cause)
			_, err := t.exec(ctx, parkAgainSQL, name, p.Sequence, string(p.Reason), row.attempts, t.due(p), row.history)
			if err != nil {
				return err
			}
			rows[p.Sequence] = row
		}
	}
	for chunk := range slices.Chunk(fromLog, parkAtOnce) {
		if err := t.parkFromLog(ctx, name, st.Partition, chunk, l); err != nil {
			return err
		}
	}
	return nil
}

// due is when a parked message's time comes, NULL for one that waits behind its key.
func (t txn) due(p relay.Parked) sql.Null[int64] {
	return sql.Null[int64]{V: t.now + p.After.Microseconds(), Valid: !p.Waits}
}

// attemptOf is the number of the attempt that an entry of the history is about, 0 if it is about none.
func attemptOf(p relay.Parked) int {
	if p.Reason == relay.ParkRetry {
		return p.Attempts
	}
	return 0
}

func (t txn) parkFromLog(ctx context.Context, name string, partition int, parked []relay.Parked, l leased) error {
	input := make([]string, len(parked))
	for i, p := range parked {
		input[i] = render(parkLogRow, []any{p.Sequence, string(p.Reason), p.Attempts, t.due(p), t.addEntry("[]", attemptOf(p), p.Cause)})
	}
	text := strings.Replace(parkLogSQL, `%s`, strings.Join(input, ` UNION ALL `), 1)
	n, err := t.exec(ctx, text, name, partition, t.now)
	if err != nil || int(n) == len(parked) {
		return err
	}
	// What the cursor has passed was put aside by the same settlement, whose answer was lost.
	var seqs []int64
	for _, p := range parked {
		if !l.passed(p.Sequence) {
			seqs = append(seqs, p.Sequence)
		}
	}
	known, err := column[int64](ctx, t, settledSQL, name, partition, seqs)
	if err != nil {
		return err
	}
	settled := set(known)
	for _, seq := range seqs {
		if !settled[seq] {
			return fmt.Errorf("message %d: %w", seq, errNotInLog)
		}
	}
	return nil
}

// keptEntries is how many entries of a history are kept.
const keptEntries = 20

// addEntry appends an entry to a history, unless there is no cause. One that repeats the last, but for its time, is that one,
// settled a second time. A history that cannot be read begins anew.
func (t txn) addEntry(history string, attempt int, cause string) string {
	if cause == "" {
		return history
	}
	entries, _ := stored.History(history)
	entry := postrider.AttemptInfo{Attempt: attempt, At: stored.Time(t.now), Cause: stored.Cause(cause)}
	if n := len(entries); n > 0 && entries[n-1].Attempt == entry.Attempt && entries[n-1].Cause == entry.Cause {
		return history
	}
	return encodeHistory(append(entries, entry))
}
