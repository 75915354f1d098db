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
	"github.com/postrider/postrider/relay"
)

const (
	defaultBatch = 1_000 // letters that a call resolves when no limit is given
	listPage     = 100   // letters read at a time
)

const (
	letterColumns = `number, relay, partition, seq, reason, cause, attempts, history, died_at, redrives, state, resolved_at,
		resolved_by, resolution, ` + messageColumns
	listDeadSQL  = `SELECT ` + letterColumns + ` FROM {prefix}dead WHERE `
	countDeadSQL = `SELECT count(*) FROM {prefix}dead WHERE `
	pageSQL      = ` AND number > ? ORDER BY number LIMIT +?`
	showDeadSQL  = listDeadSQL + `number = ?`
)

// condition is the WHERE clause of a filter.
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

// letterRow is what letterColumns are scanned into.
type letterRow struct {
	l                 deadletter.Letter
	seq, died, closed int64
	state, history    string
	row               *stored.Row
}

func newLetterRow() *letterRow {
	r := &letterRow{}
	l := &r.l
	r.row = stored.NewRow(&l.Number, &l.Relay, &l.Partition, &r.seq, &l.Reason, &l.Cause, &l.Attempts, &r.history, &r.died,
		&l.Redrives, &r.state, &r.closed, &l.ResolvedBy, &l.Resolution)
	return r
}

func (r *letterRow) letter(rows *sql.Rows) (deadletter.Letter, error) {
	if err := rows.Scan(r.row.Dest()...); err != nil {
		return deadletter.Letter{}, err
	}
	l := r.l
	l.Message, _ = r.row.Message(r.seq) // of one that cannot be read, what could be read is shown
	l.State, l.DiedAt = deadletter.State(r.state), stored.Time(r.died)
	if r.closed != 0 {
		l.ResolvedAt = stored.Time(r.closed)
	}
	var err error
	l.History, err = stored.History(r.history)
	return l, err
}

func (t txn) letters(ctx context.Context, text string, args []any) ([]deadletter.Letter, error) {
	var out []deadletter.Letter
	row := newLetterRow()
	err := t.each(ctx, text, args, func(rows *sql.Rows) error {
		l, err := row.letter(rows)
		out = append(out, l)
		return err
	})
	return out, err
}

// ListDead implements deadletter.Store.
func (s *Store) ListDead(ctx context.Context, f deadletter.Filter, after int64, limit int) iter.Seq2[deadletter.Letter, error] {
	where, args := condition(f)
	return func(yield func(deadletter.Letter, error) bool) {
		for left := limit; limit == 0 || left > 0; left -= listPage {
			size := listPage
			if limit > 0 {
				size = min(size, left)
			}
			var page []deadletter.Letter
			err := s.read(ctx, "list dead letters", func(t txn) (err error) {
				page, err = t.letters(ctx, listDeadSQL+where+pageSQL, append(args[:len(args):len(args)], after, size))
				return err
			})
			if err != nil {
				yield(deadletter.Letter{}, err)
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
func (s *Store) ShowDead(ctx context.Context, number int64) (deadletter.Letter, error) {
	var found []deadletter.Letter
	err := s.read(ctx, "show a dead letter", func(t txn) (err error) {
		found, err = t.letters(ctx, showDeadSQL, []any{number})
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("%w: %d", deadletter.ErrNotFound, number)
		}
		return err
	})
	if err != nil {
		return deadletter.Letter{}, err
	}
	return found[0], nil
}

// CountDead implements deadletter.Store.
func (s *Store) CountDead(ctx context.Context, f deadletter.Filter) (int64, error) {
	var n int64
	where, args := condition(f)
	err := s.read(ctx, "count dead letters", func(t txn) error { return t.get(ctx, countDeadSQL+where, args, &n) })
	return n, err
}

const (
	stateSQL   = `SELECT state, resolved_by FROM {prefix}dead WHERE number = ?`
	chooseSQL  = `SELECT number, relay, key, seq FROM {prefix}dead WHERE `
	resolveSQL = `UPDATE {prefix}dead SET state = ?, resolved_at = ?, resolved_by = ?, resolution = ? WHERE number = ?`
	// A key waits for the decision about its head.
	waitsForSQL = `SELECT EXISTS (SELECT 1 FROM {prefix}held WHERE relay = ? AND key = ? AND seq = ? AND due_at IS NULL)`
	// The parameters: ?1 number, ?3 reason, ?6 due or NULL, ?7 now, ?8 history entry.
	redriveSQL = `INSERT INTO {prefix}parked (` + copiedColumns + `)
		SELECT relay, partition, seq, ` + messageColumns + `, ?3, 0, ?6, ?7, redrives + 1, ` + historySQL + `
		FROM {prefix}dead WHERE number = ?1
		ON CONFLICT (relay, seq) DO UPDATE SET reason = excluded.reason, attempts = 0, due_at = excluded.due_at,
			parked_at = excluded.parked_at, redrives = excluded.redrives, history = excluded.history`
	redrivenHeadSQL = `UPDATE {prefix}held SET seq = ?3, reason = ?4, cause = '', attempts = 0 WHERE relay = ?1 AND key = ?2`
)

// chosenLetter is an open letter that is to be resolved.
type chosenLetter struct {
	number, seq int64
	relay, key  string
}

// RedriveDead implements deadletter.Store.
func (s *Store) RedriveDead(ctx context.Context, f deadletter.Filter, by string, limit int) (int, error) {
	return s.resolve(ctx, "redrive dead letters", f, limit, func(t txn, l chosenLetter) error {
		if _, err := t.exec(ctx, resolveSQL, string(deadletter.Redriven), t.now, by, "", l.number); err != nil {
			return err
		}
		return t.redrive(ctx, l, by)
	})
}

// redrive parks a letter's message, due at once. The head of a key that waited for the decision takes its place before its
// followers again; any other stands for itself.
func (t txn) redrive(ctx context.Context, l chosenLetter, by string) error {
	entry, err := stored.Entry(0, t.now, "redriven by "+by)
	if err != nil {
		return err
	}
	var head bool
	if err := t.get(ctx, waitsForSQL, []any{l.relay, l.key, l.seq}, &head); err != nil {
		return err
	}
	due := sql.Null[int64]{V: t.now, Valid: !head}
	reason := string(relay.ParkRedriven)
	if _, err := t.exec(ctx, redriveSQL, l.number, nil, reason, nil, nil, due, t.now, entry); err != nil || !head {
		return err
	}
	if _, err := t.exec(ctx, redrivenHeadSQL, l.relay, l.key, l.seq, reason); err != nil {
		return err
	}
	_, err = t.letGo(ctx, l.relay, l.key)
	return err
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

// resolve does something to each open letter that the filter chooses, or to none if one that it names is not open.
func (s *Store) resolve(ctx context.Context, doing string, f deadletter.Filter, limit int, apply func(txn, chosenLetter) error) (int, error) {
	if f.State == deadletter.AnyState {
		f.State = deadletter.Open
	}
	var chosen []chosenLetter
	err := s.write(ctx, doing, durable, func(t txn) error {
		chosen = nil
		if err := t.checkOpen(ctx, f.Numbers); err != nil {
			return err
		}
		if f.State != "" && f.State != deadletter.Open {
			return nil
		}
		where, args := condition(f)
		args = append(args, 0, cmp.Or(limit, defaultBatch))
		err := t.each(ctx, chooseSQL+where+pageSQL, args, func(rows *sql.Rows) error {
			var l chosenLetter
			err := rows.Scan(&l.number, &l.relay, &l.key, &l.seq)
			chosen = append(chosen, l)
			return err
		})
		if err != nil {
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

func (t txn) checkOpen(ctx context.Context, numbers []int64) error {
	for _, n := range numbers {
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

// age is the time since a stored moment, 0 without one.
func age(at sql.Null[int64], now int64) time.Duration {
	if !at.Valid {
		return 0
	}
	return micros(now - at.V)
}
