package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"strings"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

const (
	isConsumerSQL = `relay IN (` + consumerNamesSQL + `)`
	deadColumns   = `number, relay, partition, seq, reason, cause, attempts, history, died_at, redrives, state, resolved_at,
		resolved_by, resolution, edits, redrive, ` + isConsumerSQL + `, ` + messageColumns
	listDeadSQL  = `SELECT ` + deadColumns + ` FROM {prefix}dead WHERE `
	countDeadSQL = `SELECT count(*) FROM {prefix}dead WHERE `
	pageSQL      = ` ORDER BY number LIMIT +?`

	spanSQL   = `SELECT count(*), coalesce(min(number), 0), coalesce(max(number), 0) FROM (SELECT number FROM {prefix}dead WHERE `
	newestSQL = ` ORDER BY number DESC LIMIT +?`
)

// noLimit is the LIMIT of a query without one.
const noLimit = -1

// condition returns the WHERE clause of a query, without its limit.
func condition(q store.DeadQuery) (text string, args []any) {
	f := q.DeadFilter
	var terms []string
	add := func(term string, arg any) {
		terms, args = append(terms, term), append(args, arg)
	}
	if state := cmp.Or(f.State, store.DeadOpen); state != store.DeadAny {
		add(`state = ?`, string(state))
	}
	for _, equal := range []struct{ column, value string }{
		{"relay", f.Relay}, {"topic", f.Topic}, {"type", f.Type}, {"key", f.Key}, {"tenant", f.Tenant}, {"reason", f.Reason},
		{"id", f.MessageID},
	} {
		if equal.value != "" {
			add(equal.column+` = ?`, equal.value)
		}
	}
	if f.Cause != "" {
		add(`instr(cause, ?) > 0`, f.Cause)
	}
	if f.Fingerprint != "" {
		add(`fingerprint = ?`, f.Fingerprint)
	}
	if f.Redrive != 0 {
		add(`redrive = ?`, f.Redrive)
	}
	if f.Side != "" {
		add(isConsumerSQL+` = ?`, f.Side == store.KindConsumer)
	}
	if !f.From.IsZero() {
		add(`died_at >= ?`, f.From.UnixMicro())
	}
	if !f.To.IsZero() {
		add(`died_at < ?`, f.To.UnixMicro())
	}
	if len(f.Numbers) > 0 {
		add(`number IN (SELECT value FROM json_each(?))`, list(f.Numbers))
	}
	if q.After != 0 {
		add(`number > ?`, q.After)
	}
	if q.UpTo != 0 {
		add(`number <= ?`, q.UpTo)
	}
	if len(terms) == 0 {
		return `true`, nil
	}
	return strings.Join(terms, ` AND `), args
}

// deadRow holds the scanned deadColumns.
type deadRow struct {
	l                 store.DeadLetter
	seq, died, closed int64
	state, history    string
	consumer          bool
	row               *stored.Row
}

func newDeadRow() *deadRow {
	r := &deadRow{}
	l := &r.l
	r.row = stored.NewRow(&l.Number, &l.Relay, &l.Partition, &r.seq, &l.Reason, &l.Cause, &l.Attempts, &r.history, &r.died,
		&l.Redrives, &r.state, &r.closed, &l.ResolvedBy, &l.Resolution, &l.Edits, &l.Redrive, &r.consumer)
	return r
}

func (r *deadRow) read(rows *sql.Rows) (store.DeadLetter, error) {
	if err := rows.Scan(r.row.Dest()...); err != nil {
		return store.DeadLetter{}, err
	}
	l := r.l
	var unreadable error
	if l.Message, unreadable = r.row.Message(r.seq); unreadable != nil {
		l.Unreadable = unreadable.Error()
	}
	if l.Side = store.KindRelay; r.consumer {
		l.Side = store.KindConsumer
	}
	l.State, l.DiedAt = store.DeadState(r.state), stored.Time(r.died)
	if r.closed != 0 {
		l.ResolvedAt = stored.Time(r.closed)
	}
	var err error
	l.History, err = stored.History(r.history)
	return l, err
}

// DeadLetters implements store.Reader.
func (r records) DeadLetters(ctx context.Context, q store.DeadQuery) (out []store.DeadLetter, err error) {
	where, args := condition(q)
	row := newDeadRow()
	err = r.each(ctx, listDeadSQL+where+pageSQL, append(args, cmp.Or(q.Limit, noLimit)), func(rows *sql.Rows) error {
		l, err := row.read(rows)
		out = append(out, l)
		return err
	})
	return out, err
}

// CountDead implements store.Reader.
func (r records) CountDead(ctx context.Context, q store.DeadQuery) (n int64, err error) {
	where, args := condition(q)
	err = r.get(ctx, countDeadSQL+where, args, &n)
	return n, err
}

// SpanDead implements store.Reader.
func (r records) SpanDead(ctx context.Context, q store.DeadQuery, newest bool) (found store.DeadSpan, err error) {
	where, args := condition(q)
	page := pageSQL
	if newest {
		page = newestSQL
	}
	err = r.get(ctx, spanSQL+where+page+`)`, append(args, cmp.Or(q.Limit, noLimit)), &found.N, &found.First, &found.Last)
	return found, err
}

const (
	namedSQL   = `SELECT number, state, resolved_by, redrives FROM {prefix}dead WHERE number IN (SELECT value FROM json_each(?))`
	chooseSQL  = `SELECT number, relay, key, seq, redrives FROM {prefix}dead WHERE `
	resolveSQL = `UPDATE {prefix}dead SET state = ?, resolved_at = ?, resolved_by = ?, resolution = ? WHERE number = ?`
	// Whether a key waits for the decision about its blocking message.
	waitsForSQL = `SELECT EXISTS (SELECT 1 FROM {prefix}held WHERE relay = ? AND key = ? AND seq = ? AND due_at IS NULL)`
)

// NamedDead implements store.Writer.
func (r records) NamedDead(ctx context.Context, numbers []int64) (out []store.NamedDead, err error) {
	err = r.each(ctx, namedSQL, []any{list(numbers)}, func(rows *sql.Rows) error {
		var l store.NamedDead
		err := rows.Scan(&l.Number, &l.State, &l.ResolvedBy, &l.Redrives)
		out = append(out, l)
		return err
	})
	return out, err
}

// chosenDead is an open dead letter to resolve.
type chosenDead struct {
	number, seq int64
	relay, key  string
}

// LockDead implements store.Writer: the transaction has locked the database.
func (r records) LockDead(ctx context.Context, q store.DeadQuery, below int) (found store.LockedDead, err error) {
	where, args := condition(q)
	args = append(args, below, below, cmp.Or(q.Limit, noLimit))
	clear(r.chosen)
	err = r.each(ctx, chooseSQL+where+` AND (redrives < ? OR ? < 0)`+pageSQL, args, func(rows *sql.Rows) error {
		var l chosenDead
		var redrives int
		err := rows.Scan(&l.number, &l.relay, &l.key, &l.seq, &redrives)
		r.chosen[l.number] = l
		found.Last, found.Open = l.number, append(found.Open, store.OpenDead{Number: l.number, Redrives: redrives})
		return err
	})
	found.More = len(found.Open) == q.Limit
	return found, err
}

// Resolve implements store.Writer.
func (r records) Resolve(ctx context.Context, numbers []int64, how store.Resolution) error {
	return stored.Resolve(ctx, r.chosen, numbers, how, r.discard, r.redrive)
}

func (r records) discard(ctx context.Context, l chosenDead, how store.Resolution) error {
	if _, err := r.exec(ctx, resolveSQL, string(how.State), r.now, how.By, how.Reason, l.number); err != nil {
		return err
	}
	var head bool
	if err := r.get(ctx, waitsForSQL, []any{l.relay, l.key, l.seq}, &head); err != nil || !head {
		return err
	}
	_, err := r.resumeKey(ctx, l.relay, l.key)
	return err
}
