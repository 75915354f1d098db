package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/internal/stored"
)

const (
	defaultBatch = 1_000 // dead letters resolved by a call without a limit
	listPage     = 100   // dead letters read at a time
)

const (
	// The cursors of a consumer are always at the end of the log.
	consumersSQL  = `(SELECT relay FROM {prefix}cursors WHERE position = 9223372036854775806)`
	letterColumns = `number, relay, partition, seq, reason, cause, attempts, history, died_at, redrives, state, resolved_at,
		resolved_by, resolution, edits, redrive, relay IN ` + consumersSQL + `, ` + messageColumns
	listDeadSQL  = `SELECT ` + letterColumns + ` FROM {prefix}dead WHERE `
	countDeadSQL = `SELECT count(*) FROM {prefix}dead WHERE `
	pageSQL      = ` AND number > ? ORDER BY number LIMIT +?`
	showDeadSQL  = listDeadSQL + `number = ?`
)

// condition returns the WHERE clause of a filter.
func condition(f deadletter.Filter) (text string, args []any) {
	var terms []string
	add := func(term string, arg any) {
		terms, args = append(terms, term), append(args, arg)
	}
	if state := cmp.Or(f.State, deadletter.Open); state != deadletter.AnyState {
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
		add(`relay IN `+consumersSQL+` = ?`, f.Side == deadletter.ConsumerSide)
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
	if len(terms) == 0 {
		return `true`, nil
	}
	return strings.Join(terms, ` AND `), args
}

// letterRow holds the scanned letterColumns.
type letterRow struct {
	l                 deadletter.Record
	seq, died, closed int64
	state, history    string
	consumer          bool
	row               *stored.Row
}

func newLetterRow() *letterRow {
	r := &letterRow{}
	l := &r.l
	r.row = stored.NewRow(&l.Number, &l.Relay, &l.Partition, &r.seq, &l.Reason, &l.Cause, &l.Attempts, &r.history, &r.died,
		&l.Redrives, &r.state, &r.closed, &l.ResolvedBy, &l.Resolution, &l.Edits, &l.Redrive, &r.consumer)
	return r
}

func (r *letterRow) letter(rows *sql.Rows) (deadletter.Record, error) {
	if err := rows.Scan(r.row.Dest()...); err != nil {
		return deadletter.Record{}, err
	}
	l := r.l
	var unreadable error
	if l.Message, unreadable = r.row.Message(r.seq); unreadable != nil {
		l.Unreadable = unreadable.Error()
	}
	if l.Side = deadletter.RelaySide; r.consumer {
		l.Side = deadletter.ConsumerSide
	}
	l.State, l.DiedAt = deadletter.State(r.state), stored.Time(r.died)
	if r.closed != 0 {
		l.ResolvedAt = stored.Time(r.closed)
	}
	var err error
	l.History, err = stored.History(r.history)
	return l, err
}

func (t txn) letters(ctx context.Context, text string, args []any) ([]deadletter.Record, error) {
	var out []deadletter.Record
	row := newLetterRow()
	err := t.each(ctx, text, args, func(rows *sql.Rows) error {
		l, err := row.letter(rows)
		out = append(out, l)
		return err
	})
	return out, err
}

// ListDead implements deadletter.Store.
func (s *Store) ListDead(ctx context.Context, f deadletter.Filter, after int64, limit int) iter.Seq2[deadletter.Record, error] {
	where, args := condition(f)
	return func(yield func(deadletter.Record, error) bool) {
		for left := limit; limit == 0 || left > 0; left -= listPage {
			size := listPage
			if limit > 0 {
				size = min(size, left)
			}
			var page []deadletter.Record
			err := s.markCauses(ctx, f)
			if err != nil {
				yield(deadletter.Record{}, err)
				return
			}
			err = s.read(ctx, "list dead letters", func(t txn) (err error) {
				page, err = t.letters(ctx, listDeadSQL+where+pageSQL, append(args[:len(args):len(args)], after, size))
				return err
			})
			if err != nil {
				yield(deadletter.Record{}, err)
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
	var found []deadletter.Record
	err := s.read(ctx, "show a dead letter", func(t txn) (err error) {
		found, err = t.letters(ctx, showDeadSQL, []any{number})
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("%w: %d", deadletter.ErrNotFound, number)
		}
		return err
	})
	if err != nil {
		return deadletter.Record{}, err
	}
	return found[0], nil
}

// CountDead implements deadletter.Store.
func (s *Store) CountDead(ctx context.Context, f deadletter.Filter) (int64, error) {
	var n int64
	where, args := condition(f)
	err := s.markCauses(ctx, f)
	if err != nil {
		return 0, err
	}
	err = s.read(ctx, "count dead letters", func(t txn) error { return t.get(ctx, countDeadSQL+where, args, &n) })
	return n, err
}

const (
	stateSQL   = `SELECT state, resolved_by, redrives FROM {prefix}dead WHERE number = ?`
	chooseSQL  = `SELECT number, relay, key, seq, redrives FROM {prefix}dead WHERE `
	resolveSQL = `UPDATE {prefix}dead SET state = ?, resolved_at = ?, resolved_by = ?, resolution = ? WHERE number = ?`
	// Whether a key waits for the decision about its blocking message.
	waitsForSQL = `SELECT EXISTS (SELECT 1 FROM {prefix}held WHERE relay = ? AND key = ? AND seq = ? AND due_at IS NULL)`
)

// chosenLetter is an open dead letter to resolve.
type chosenLetter struct {
	number, seq int64
	relay, key  string
	redrives    int
}

// DiscardDead implements deadletter.Store.
func (s *Store) DiscardDead(ctx context.Context, f deadletter.Filter, by, reason string, limit int) (int, error) {
	return s.resolve(ctx, "discard dead letters", f, limit, func(t txn, l chosenLetter) error {
		if _, err := t.exec(ctx, resolveSQL, string(deadletter.Discarded), t.now, by, reason, l.number); err != nil {
			return err
		}
		var head bool
		if err := t.get(ctx, waitsForSQL, []any{l.relay, l.key, l.seq}, &head); err != nil || !head {
			return err
		}
		_, err := t.letGo(ctx, l.relay, l.key)
		return err
	})
}

// resolve applies a function to each open dead letter that the filter selects, or to none if one that it names is not open.
func (s *Store) resolve(ctx context.Context, doing string, f deadletter.Filter, limit int, apply func(txn, chosenLetter) error) (int, error) {
	var chosen []chosenLetter
	if err := s.markCauses(ctx, f); err != nil {
		return 0, err
	}
	err := s.write(ctx, doing, durable, func(t txn) (err error) {
		if err := t.checkOpen(ctx, f.Numbers); err != nil {
			return err
		}
		if chosen, err = t.chooseOpen(ctx, f, "", 0, cmp.Or(limit, defaultBatch)); err != nil {
			return err
		}
		for _, l := range chosen {
			if err := apply(t, l); err != nil {
				return fmt.Errorf("dead letter %d: %w", l.number, err)
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if len(chosen) > 0 {
		s.Wake()
	}
	return len(chosen), nil
}

// chooseOpen returns the open dead letters that the filter selects, after a number; and is a further condition.
func (t txn) chooseOpen(ctx context.Context, f deadletter.Filter, and string, after int64, limit int, more ...any) (chosen []chosenLetter, err error) {
	if f.State != "" && f.State != deadletter.Open && f.State != deadletter.AnyState {
		return nil, nil // none of these is open
	}
	f.State = deadletter.Open
	where, args := condition(f)
	args = append(append(args, more...), after, limit)
	err = t.each(ctx, chooseSQL+where+and+pageSQL, args, func(rows *sql.Rows) error {
		var l chosenLetter
		err := rows.Scan(&l.number, &l.relay, &l.key, &l.seq, &l.redrives)
		chosen = append(chosen, l)
		return err
	})
	return chosen, err
}

// checkOpen refuses numbers that are not those of open dead letters.
func (t txn) checkOpen(ctx context.Context, numbers []int64) error {
	for _, n := range numbers {
		if _, err := t.openLetter(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// openLetter returns how often the message of an open dead letter was redriven.
func (t txn) openLetter(ctx context.Context, number int64) (redrives int, err error) {
	var state, by string
	err = t.get(ctx, stateSQL, []any{number}, &state, &by, &redrives)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, fmt.Errorf("%w: %d", deadletter.ErrNotFound, number)
	case err != nil:
		return 0, err
	case deadletter.State(state) != deadletter.Open:
		return 0, fmt.Errorf("%w: %d was %s by %s", deadletter.ErrResolved, number, state, by)
	}
	return redrives, nil
}

// age returns the time since a stored moment, 0 without one.
func age(at sql.Null[int64], now int64) time.Duration {
	if !at.Valid {
		return 0
	}
	return micros(now - at.V)
}
