package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	isConsumerSQL = `EXISTS (SELECT 1 FROM {prefix}cursors c WHERE c.relay = d.relay AND c.kind = 'consumer')`
	deadColumns   = `number, relay, ` + isConsumerSQL + `, partition_id, seq, reason, cause, attempts, history, died_at, redrives, edits,
		state, redrive, resolved_at, resolved_by, resolution, ` + messageColumns
	listDeadSQL  = `SELECT ` + deadColumns + ` FROM {prefix}dead d WHERE `
	countDeadSQL = `SELECT COUNT(*) FROM {prefix}dead d WHERE `
	spanDeadSQL  = `SELECT COUNT(*), COALESCE(MIN(number), 0), COALESCE(MAX(number), 0) FROM (SELECT number FROM {prefix}dead d WHERE %s) s`
)

// condition returns the WHERE clause of a query, without its limit, with its values inlined.
func (s *Store) condition(q store.DeadQuery) string {
	f := q.DeadFilter
	var terms []string
	add := func(term string, args ...any) { terms = append(terms, render(s.expand(term), args)) }
	if state := cmp.Or(f.State, store.DeadOpen); state != store.DeadAny {
		add(`state = ?`, string(state))
	}
	for _, equal := range []struct{ column, value string }{
		{"relay", f.Relay}, {"topic", f.Topic}, {"type", f.Type}, {"message_key", f.Key}, {"tenant", f.Tenant}, {"reason", f.Reason},
		{"id", f.MessageID}, {"fingerprint", f.Fingerprint},
	} {
		if equal.value != "" {
			add(equal.column+` = ?`, equal.value)
		}
	}
	if f.Cause != "" {
		add(`LOCATE(?, cause) > 0`, f.Cause)
	}
	switch f.Side {
	case store.KindConsumer:
		add(isConsumerSQL)
	case store.KindRelay:
		add(`NOT ` + isConsumerSQL)
	}
	if f.Redrive != 0 {
		add(`redrive = ?`, f.Redrive)
	}
	if !f.From.IsZero() {
		add(`died_at >= ?`, f.From.UnixMicro())
	}
	if !f.To.IsZero() {
		add(`died_at < ?`, f.To.UnixMicro())
	}
	if len(f.Numbers) > 0 {
		add(`number IN ?`, f.Numbers)
	}
	if q.After != 0 {
		add(`number > ?`, q.After)
	}
	if q.UpTo != 0 {
		add(`number <= ?`, q.UpTo)
	}
	if len(terms) == 0 {
		return `TRUE`
	}
	return strings.Join(terms, ` AND `)
}

// inOrder orders the results of a query, and limits them.
func inOrder(q store.DeadQuery) string {
	return limited(q, ` ORDER BY number`)
}

func limited(q store.DeadQuery, order string) string {
	if q.Limit == 0 {
		return order
	}
	return fmt.Sprintf(`%s LIMIT %d`, order, q.Limit)
}

// deadRow holds a scanned row of deadColumns.
type deadRow struct {
	l                 store.DeadLetter
	consumer          bool
	seq, died, closed int64
	state, history    string
	row               *stored.Row
}

func newDeadRow() *deadRow {
	r := &deadRow{}
	l := &r.l
	r.row = stored.NewRow(&l.Number, &l.Relay, &r.consumer, &l.Partition, &r.seq, &l.Reason, &l.Cause, &l.Attempts, &r.history, &r.died,
		&l.Redrives, &l.Edits, &r.state, &l.Redrive, &r.closed, &l.ResolvedBy, &l.Resolution)
	return r
}

func (r *deadRow) read(rows *sql.Rows) (store.DeadLetter, error) {
	if err := rows.Scan(r.row.Dest()...); err != nil {
		return store.DeadLetter{}, err
	}
	l := r.l
	var fault error
	if l.Message, fault = r.row.Message(r.seq); fault != nil {
		l.Unreadable = fault.Error()
	}
	l.State, l.DiedAt, l.Side = store.DeadState(r.state), stored.Time(r.died), store.KindRelay
	if r.consumer {
		l.Side = store.KindConsumer
	}
	if r.closed != 0 {
		l.ResolvedAt = stored.Time(r.closed)
	}
	var err error
	l.History, err = stored.History(r.history)
	return l, err
}

// DeadLetters implements store.Reader.
func (r records) DeadLetters(ctx context.Context, q store.DeadQuery) (out []store.DeadLetter, err error) {
	row, rest := newDeadRow(), r.s.condition(q)+inOrder(q)
	read := func(rows *sql.Rows) error {
		l, err := row.read(rows)
		out = append(out, l)
		return err
	}
	err = r.eachOf(ctx, r.s.expand(listDeadSQL)+rest, read)
	if !errors.Is(kinds[r.s.cfg.ErrorCode(err)], ErrDenied) {
		return out, err
	}
	// An operator may have no right to read contents (Grants).
	err = r.eachOf(ctx, r.s.expand(strings.Replace(listDeadSQL, messageColumns, withoutContent, 1))+rest, read)
	for i := range out {
		out[i].Unreadable = notReadable
	}
	return out, err
}

// notReadable is said of messages that are shown without their contents.
const notReadable = "the database user may not read headers and payload"

// withoutContent are the messageColumns with empty headers and payload.
var withoutContent = strings.NewReplacer("headers", "'{}'", "payload", "''").Replace(messageColumns)

// CountDead implements store.Reader.
func (r records) CountDead(ctx context.Context, q store.DeadQuery) (n int64, err error) {
	err = r.eachOf(ctx, r.s.expand(countDeadSQL)+r.s.condition(q), func(rows *sql.Rows) error { return rows.Scan(&n) })
	return n, err
}

// SpanDead implements store.Reader.
func (r records) SpanDead(ctx context.Context, q store.DeadQuery, newest bool) (found store.DeadSpan, err error) {
	page := inOrder(q)
	if newest {
		page = limited(q, ` ORDER BY number DESC`)
	}
	err = r.eachOf(ctx, fmt.Sprintf(r.s.expand(spanDeadSQL), r.s.condition(q)+page), func(rows *sql.Rows) error {
		return rows.Scan(&found.N, &found.First, &found.Last)
	})
	return found, err
}

const (
	chooseSQL  = `SELECT number, relay, partition_id, message_key, seq, redrives FROM {prefix}dead d WHERE `
	namedSQL   = `SELECT number, state, resolved_by, redrives FROM {prefix}dead WHERE number IN ?`
	resolveSQL = `UPDATE {prefix}dead SET state = ?, resolved_at = ?, resolved_by = ?, resolution = ?, redrive = ? WHERE number = ?`
	// lockCursorsSQL locks cursors in partition order.
	lockCursorsSQL = `SELECT partition_id FROM {prefix}cursors WHERE relay = ? AND partition_id IN ? ORDER BY partition_id FOR UPDATE`
	lockDeadSQL    = `SELECT number FROM {prefix}dead WHERE number IN ? AND state = 'open' ORDER BY number FOR UPDATE`
)

// chosenDead is an open dead letter to resolve.
type chosenDead struct {
	number    int64
	relay     string
	partition int
	key       string
	seq       int64
	redrives  int
}

// NamedDead implements store.Writer.
func (r records) NamedDead(ctx context.Context, numbers []int64) (out []store.NamedDead, err error) {
	err = r.each(ctx, namedSQL, []any{numbers}, func(rows *sql.Rows) error {
		var l store.NamedDead
		err := rows.Scan(&l.Number, &l.State, &l.ResolvedBy, &l.Redrives)
		out = append(out, l)
		return err
	})
	return out, err
}

// LockDead implements store.Writer. The cursors of the partitions stand for the leases.
func (r records) LockDead(ctx context.Context, q store.DeadQuery, below int) (found store.LockedDead, err error) {
	clear(r.chosen)
	where := r.s.condition(q)
	if below >= 0 {
		where += fmt.Sprintf(` AND redrives < %d`, below)
	}
	partitions := make(map[string][]int)
	var numbers []int64
	err = r.eachOf(ctx, r.s.expand(chooseSQL)+where+inOrder(q), func(rows *sql.Rows) error {
		var l chosenDead
		err := rows.Scan(&l.number, &l.relay, &l.partition, &l.key, &l.seq, &l.redrives)
		r.chosen[l.number], numbers = l, append(numbers, l.number)
		partitions[l.relay] = append(partitions[l.relay], l.partition)
		return err
	})
	if err != nil || len(numbers) == 0 {
		return found, err
	}
	for _, name := range slices.Sorted(maps.Keys(partitions)) {
		if _, err := stored.Column[int](ctx, r.txn.query, lockCursorsSQL, name, partitions[name]); err != nil {
			return found, err
		}
	}
	open, err := stored.Column[int64](ctx, r.txn.query, lockDeadSQL, numbers)
	found.Last, found.More = numbers[len(numbers)-1], len(numbers) == q.Limit
	for _, number := range open {
		found.Open = append(found.Open, store.OpenDead{Number: number, Redrives: r.chosen[number].redrives})
	}
	return found, err
}

// Resolve implements store.Writer.
func (r records) Resolve(ctx context.Context, numbers []int64, how store.Resolution) error {
	return stored.Resolve(ctx, r.chosen, numbers, how, r.discard, r.redrive)
}

func (r records) discard(ctx context.Context, l chosenDead, how store.Resolution) error {
	if _, err := r.exec(ctx, resolveSQL, string(how.State), r.now, how.By, how.Reason, 0, l.number); err != nil {
		return err
	}
	waits, err := r.waitsFor(ctx, l)
	if err == nil && waits {
		_, err = r.resumeKey(ctx, l.relay, l.key)
	}
	return err
}

// waitsFor locks the key of a dead letter and reports whether the key waits for the decision about it.
func (r records) waitsFor(ctx context.Context, l chosenDead) (bool, error) {
	if l.key == "" {
		return false, nil
	}
	held, err := r.lockHeld(ctx, l.relay, l.key)
	return held != nil && !held.due.Valid && held.seq == l.seq, err
}
