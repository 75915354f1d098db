package memory

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/deadletter"
)

const (
	defaultBatch = 1_000 // dead letters that a call resolves when no limit is given
	listPage     = 100   // dead letters read at a time
)

// deadRow is a dead letter and what its message needs to be parked again.
type deadRow struct {
	deadletter.Record
	undecodable error
	size        int
	edits       []deadletter.Edited
}

// deadLetter adds a dead letter.
func (db *database) deadLetter(name string, partition int, row *parkedRow, reason, cause string, attempts int, at time.Time) *deadRow {
	db.lastNumber++
	l := &deadRow{undecodable: row.undecodable, size: row.size, Record: deadletter.Record{
		Number: db.lastNumber, Relay: name, Partition: partition, Message: row.msg,
		Reason: reason, Cause: cut(cause), Attempts: attempts, History: row.history,
		DiedAt: at, Redrives: row.redrives, State: deadletter.Open,
	}}
	db.letters = append(db.letters, l)
	db.relay(name).latest[row.msg.Sequence] = l
	return l
}

// shown returns a copy that the caller can keep.
func (db *database) shown(l *deadRow) deadletter.Record {
	c := l.Record
	c.Message = clone(c.Message)
	c.History = slices.Clone(c.History)
	c.Side, c.Edits = db.side(l.Relay), len(l.edits)
	if l.undecodable != nil {
		c.Unreadable = l.undecodable.Error()
	}
	return c
}

// side reports whether a name is a consumer's or a relay's: a consumer's cursors are always at the end of the log.
func (db *database) side(name string) deadletter.Side {
	if r := db.relays[name]; r != nil && slices.ContainsFunc(r.cursors, func(c *cursorState) bool { return c != nil && c.cursor == endOfLog }) {
		return deadletter.ConsumerSide
	}
	return deadletter.RelaySide
}

func (db *database) chosen(f deadletter.Filter, l *deadRow) bool {
	m, state := l.Message, cmp.Or(f.State, deadletter.Open)
	is := func(want, got string) bool { return want == "" || want == got }
	return is(f.Relay, l.Relay) && is(f.Topic, m.Topic) && is(f.Type, m.Type) && is(f.Key, m.Key) &&
		is(f.Tenant, m.Tenant) && is(f.Reason, l.Reason) && is(f.MessageID, m.ID) &&
		strings.Contains(l.Cause, f.Cause) && (f.Side == "" || f.Side == db.side(l.Relay)) &&
		(f.Fingerprint == "" || f.Fingerprint == deadletter.Fingerprint(l.Cause)) &&
		(f.Redrive == 0 || f.Redrive == l.Redrive) &&
		(f.From.IsZero() || !l.DiedAt.Before(f.From)) && (f.To.IsZero() || l.DiedAt.Before(f.To)) &&
		(state == deadletter.AnyState || state == l.State) &&
		(len(f.Numbers) == 0 || slices.Contains(f.Numbers, l.Number))
}

// choose returns at most limit (0: all) dead letters with a number above after.
func (db *database) choose(f deadletter.Filter, after int64, limit int) []*deadRow {
	var out []*deadRow
	for _, l := range db.letters[db.lettersUpTo(after):] {
		if db.chosen(f, l) {
			if out = append(out, l); len(out) == limit {
				break
			}
		}
	}
	return out
}

func (db *database) lettersUpTo(number int64) int {
	i, _ := slices.BinarySearchFunc(db.letters, number+1, func(l *deadRow, n int64) int { return cmp.Compare(l.Number, n) })
	return i
}

func (db *database) letter(number int64) (*deadRow, error) {
	if i := db.lettersUpTo(number - 1); i < len(db.letters) && db.letters[i].Number == number {
		return db.letters[i], nil
	}
	return nil, fmt.Errorf("%w: %d", deadletter.ErrNotFound, number)
}

// ListDead implements deadletter.Store.
func (s *Store) ListDead(ctx context.Context, f deadletter.Filter, after int64, limit int) iter.Seq2[deadletter.Record, error] {
	return func(yield func(deadletter.Record, error) bool) {
		for left := limit; limit == 0 || left > 0; left -= listPage {
			size := listPage
			if limit > 0 {
				size = min(size, left)
			}
			page, err := do(ctx, s, "ListDead", func(db *database) (out []deadletter.Record, _ error) {
				for _, l := range db.choose(f, after, size) {
					out = append(out, db.shown(l))
				}
				return out, nil
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
	return do(ctx, s, "ShowDead", func(db *database) (deadletter.Record, error) {
		l, err := db.letter(number)
		if err != nil {
			return deadletter.Record{}, err
		}
		return db.shown(l), nil
	})
}

// CountDead implements deadletter.Store.
func (s *Store) CountDead(ctx context.Context, f deadletter.Filter) (int64, error) {
	return do(ctx, s, "CountDead", func(db *database) (int64, error) { return int64(len(db.choose(f, 0, 0))), nil })
}

// DiscardDead implements deadletter.Store.
func (s *Store) DiscardDead(ctx context.Context, f deadletter.Filter, by, reason string, limit int) (int, error) {
	n, err := do(ctx, s, "DiscardDead", func(db *database) (int, error) {
		return db.resolve(f, limit, func(l *deadRow, at time.Time) {
			l.close(deadletter.Discarded, by, reason, at)
			parked := db.relay(l.Relay).parked[l.Partition]
			if h := parked.waitsFor(l); h != nil {
				parked.letGo(h, at)
			}
		})
	})
	if n > 0 {
		s.Wake()
	}
	return n, err
}

// resolve applies a function to each open dead letter that matches the filter, or to none if one that it names is not open.
func (db *database) resolve(f deadletter.Filter, limit int, apply func(*deadRow, time.Time)) (int, error) {
	if err := db.checkNamed(f); err != nil {
		return 0, err
	}
	if f.State != "" && f.State != deadletter.AnyState && f.State != deadletter.Open {
		return 0, nil
	}
	f.State = deadletter.Open
	at, letters := now(), db.choose(f, 0, cmp.Or(limit, defaultBatch))
	for _, l := range letters {
		apply(l, at)
	}
	return len(letters), nil
}

// checkNamed returns an error if the filter names a number that is not that of an open dead letter.
func (db *database) checkNamed(f deadletter.Filter) error {
	for _, number := range f.Numbers {
		l, err := db.letter(number)
		if err != nil {
			return err
		}
		if l.State != deadletter.Open {
			return fmt.Errorf("%w: %d was %s by %s", deadletter.ErrResolved, number, l.State, l.ResolvedBy)
		}
	}
	return nil
}

func (l *deadRow) close(state deadletter.State, by, resolution string, at time.Time) {
	l.State, l.ResolvedAt, l.ResolvedBy, l.Resolution = state, at, by, resolution
}

// waitsFor returns the key that is held until a decision about this dead letter, if there is one.
func (p *parkedSet) waitsFor(l *deadRow) *heldRow {
	if h := p.held[l.Message.Key]; h != nil && h.undecided && h.seq == l.Message.Sequence {
		return h
	}
	return nil
}
