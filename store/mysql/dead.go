package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/internal/stored"
)

const (
	defaultBatch = 1_000 // dead letters that a call resolves when no limit is given
	listPage     = 100   // dead letters read at a time
)

const (
	// isConsumerSQL: a consumer's cursors are always at inbox.EndOfLog.
	isConsumerSQL = `EXISTS (SELECT 1 FROM {prefix}cursors c WHERE c.relay = d.relay AND c.position = ?1)`
	letterColumns = `number, relay, ` + isConsumerSQL + `, partition_id, seq, reason, cause, attempts, history, died_at, redrives, edits,
		state, redrive, resolved_at, resolved_by, resolution, ` + messageColumns
	listDeadSQL  = `SELECT ` + letterColumns + ` FROM {prefix}dead d WHERE `
	countDeadSQL = `SELECT COUNT(*) FROM {prefix}dead d WHERE `
	firstSQL     = ` ORDER BY number LIMIT %d`
	pageSQL      = ` AND number > %d` + firstSQL
)

// condition returns the WHERE clause of a filter, with its values inlined.
func (s *Store) condition(f deadletter.Filter) string {
	var terms []string
	add := func(term string, args ...any) { terms = append(terms, render(s.expand(term), args)) }
	if state := cmp.Or(f.State, deadletter.Open); state != deadletter.AnyState {
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
	case deadletter.ConsumerSide:
		add(isConsumerSQL, int64(inbox.EndOfLog))
	case deadletter.RelaySide:
		add(`NOT `+isConsumerSQL, int64(inbox.EndOfLog))
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
	if len(terms) == 0 {
		return `TRUE`
	}
	return strings.Join(terms, ` AND `)
}

// letterRow holds a scanned row of letterColumns.
type letterRow struct {
	l                 deadletter.Record
	consumer          bool
	seq, died, closed int64
	state, history    string
	row               *stored.Row
}

func newLetterRow() *letterRow {
	r := &letterRow{}
	l := &r.l
	r.row = stored.NewRow(&l.Number, &l.Relay, &r.consumer, &l.Partition, &r.seq, &l.Reason, &l.Cause, &l.Attempts, &r.history, &r.died,
		&l.Redrives, &l.Edits, &r.state, &l.Redrive, &r.closed, &l.ResolvedBy, &l.Resolution)
	return r
}

func (r *letterRow) letter(rows *sql.Rows) (deadletter.Record, error) {
	if err := rows.Scan(r.row.Dest()...); err != nil {
		return deadletter.Record{}, err
	}
	l := r.l
	var fault error
	if l.Message, fault = r.row.Message(r.seq); fault != nil {
		l.Unreadable = fault.Error()
	}
	l.State, l.DiedAt, l.Side = deadletter.State(r.state), stored.Time(r.died), deadletter.RelaySide
	if r.consumer {
		l.Side = deadletter.ConsumerSide
	}
	if r.closed != 0 {
		l.ResolvedAt = stored.Time(r.closed)
	}
	var err error
	l.History, err = stored.History(r.history)
	return l, err
}

// records reads dead letters; where is a condition with its values inlined.
func (t txn) records(ctx context.Context, where string) ([]deadletter.Record, error) {
	var out []deadletter.Record
	row := newLetterRow()
	text := render(t.s.expand(listDeadSQL), []any{int64(inbox.EndOfLog)}) + where
	rows, err := t.on.QueryContext(ctx, text)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		l, err := row.letter(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, rows.Err()
}

// ListDead implements deadletter.Store.
func (s *Store) ListDead(ctx context.Context, f deadletter.Filter, after int64, limit int) iter.Seq2[deadletter.Record, error] {
	where := s.condition(f)
	return func(yield func(deadletter.Record, error) bool) {
		for left := limit; limit == 0 || left > 0; left -= listPage {
			size := listPage
			if limit > 0 {
				size = min(size, left)
			}
			page, err := s.pooled().records(ctx, where+fmt.Sprintf(pageSQL, after, size))
			if err != nil {
				yield(deadletter.Record{}, s.cfg.explain("list dead letters", err))
				return
			}
			for _, l := range page {
				if !yield(l, nil) {
					return
				}
				after = l.Number
			}
			if len(page) < size {
				return
			}
		}
	}
}

// ShowDead implements deadletter.Store.
func (s *Store) ShowDead(ctx context.Context, number int64) (deadletter.Record, error) {
	l, err := s.pooled().letter(ctx, number)
	return l, s.cfg.explain("show a dead letter", err)
}

func (t txn) letter(ctx context.Context, number int64) (deadletter.Record, error) {
	found, err := t.records(ctx, fmt.Sprintf(`number = %d`, number))
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: %d", deadletter.ErrNotFound, number)
	}
	if err != nil {
		return deadletter.Record{}, err
	}
	return found[0], nil
}

// CountDead implements deadletter.Store.
func (s *Store) CountDead(ctx context.Context, f deadletter.Filter) (n int64, err error) {
	n, err = s.pooled().countDead(ctx, s.condition(f))
	return n, s.cfg.explain("count dead letters", err)
}

func (t txn) countDead(ctx context.Context, where string) (n int64, err error) {
	err = t.get(ctx, countDeadSQL+where, nil, &n)
	return n, err
}

const (
	chooseSQL  = `SELECT number, relay, partition_id, message_key, seq, redrives FROM {prefix}dead d WHERE `
	stateSQL   = `SELECT state, resolved_by FROM {prefix}dead WHERE number = ?`
	resolveSQL = `UPDATE {prefix}dead SET state = ?, resolved_at = ?, resolved_by = ?, resolution = ?, redrive = ? WHERE number = ?`
	// lockCursorsSQL locks cursors in partition order.
	lockCursorsSQL = `SELECT partition_id FROM {prefix}cursors WHERE relay = ? AND partition_id IN ? ORDER BY partition_id FOR UPDATE`
	lockLettersSQL = `SELECT number FROM {prefix}dead WHERE number IN ? AND state = 'open' ORDER BY number FOR UPDATE`
)

// chosenLetter is an open dead letter to resolve.
type chosenLetter struct {
	number    int64
	relay     string
	partition int
	key       string
	seq       int64
	redrives  int
}

// chooseOpen selects up to limit open dead letters that match f and bounds, a further condition, and locks them and the cursors
// of their partitions. overtaken reports that others resolved some of them in between.
func (t txn) chooseOpen(ctx context.Context, f deadletter.Filter, bounds string, limit int) (letters []chosenLetter, overtaken bool, err error) {
	if f.State != "" && f.State != deadletter.AnyState && f.State != deadletter.Open {
		return nil, false, nil
	}
	f.State = deadletter.Open
	rows, err := t.on.QueryContext(ctx, t.s.expand(chooseSQL)+t.s.condition(f)+bounds+fmt.Sprintf(firstSQL, limit))
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	partitions := make(map[string][]int)
	var numbers []int64
	for rows.Next() {
		var l chosenLetter
		if err := rows.Scan(&l.number, &l.relay, &l.partition, &l.key, &l.seq, &l.redrives); err != nil {
			return nil, false, err
		}
		letters, numbers = append(letters, l), append(numbers, l.number)
		partitions[l.relay] = append(partitions[l.relay], l.partition)
	}
	if err := rows.Err(); err != nil || len(letters) == 0 {
		return nil, false, err
	}
	names := make([]string, 0, len(partitions))
	for name := range partitions {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if _, err := column[int](ctx, t, lockCursorsSQL, name, partitions[name]); err != nil {
			return nil, false, err
		}
	}
	open, err := column[int64](ctx, t, lockLettersSQL, numbers)
	still, n := set(open), len(letters)
	letters = slices.DeleteFunc(letters, func(l chosenLetter) bool { return !still[l.number] })
	return letters, len(letters) < n, err
}

// DiscardDead implements deadletter.Store.
func (s *Store) DiscardDead(ctx context.Context, f deadletter.Filter, by, reason string, limit int) (int, error) {
	return s.resolve(ctx, "discard dead letters", f, ``, limit, func(t txn, l chosenLetter) error {
		if _, err := t.exec(ctx, resolveSQL, string(deadletter.Discarded), t.now, by, reason, 0, l.number); err != nil {
			return err
		}
		waits, err := t.waitsFor(ctx, l)
		if err == nil && waits {
			_, err = t.letGo(ctx, l.relay, l.key)
		}
		return err
	})
}

// waitsFor locks the key of a dead letter and reports whether the key waits for the decision about it.
func (t txn) waitsFor(ctx context.Context, l chosenLetter) (bool, error) {
	if l.key == "" {
		return false, nil
	}
	held, err := t.lockHeld(ctx, l.relay, l.key)
	return held != nil && !held.due.Valid && held.seq == l.seq, err
}

// resolve applies a function to each open dead letter that matches the filter, or to none if one that it names is not open.
func (s *Store) resolve(ctx context.Context, doing string, f deadletter.Filter, bounds string, limit int,
	apply func(txn, chosenLetter) error) (n int, err error) {
	for overtaken := true; overtaken && n == 0 && err == nil; {
		err = s.write(ctx, doing, func(t txn) error {
			n = 0
			var letters []chosenLetter
			var err error
			if letters, overtaken, err = t.chooseOpen(ctx, f, bounds, cmp.Or(limit, defaultBatch)); err != nil {
				return err
			}
			if err := t.checkNamed(ctx, f); err != nil {
				return err
			}
			for _, l := range letters {
				if err := apply(t, l); err != nil {
					return fmt.Errorf("dead letter %d: %w", l.number, err)
				}
				n++
			}
			return nil
		})
	}
	if err != nil {
		return 0, err
	}
	if n > 0 {
		s.Wake()
	}
	return n, nil
}

// checkNamed returns an error if the filter names a number that is not that of an open dead letter.
func (t txn) checkNamed(ctx context.Context, f deadletter.Filter) error {
	for _, n := range f.Numbers {
		var state, by string
		err := t.get(ctx, stateSQL, []any{n}, &state, &by)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return fmt.Errorf("%w: %d", deadletter.ErrNotFound, n)
		case err != nil:
			return err
		case deadletter.State(state) != deadletter.Open:
			return fmt.Errorf("%w: %d was %s by %s", deadletter.ErrResolved, n, state, by)
		}
	}
	return nil
}
