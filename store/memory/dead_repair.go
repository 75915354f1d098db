package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
)

// EditDead implements deadletter.RepairStore.
func (s *Store) EditDead(ctx context.Context, number int64, e deadletter.Edit) (deadletter.Record, error) {
	return do(ctx, s, "EditDead", func(db *database) (deadletter.Record, error) {
		if err := db.checkNamed(deadletter.Filter{Numbers: []int64{number}}); err != nil {
			return deadletter.Record{}, err
		}
		l, err := db.letter(number)
		if err != nil {
			return deadletter.Record{}, err
		}
		if len(l.edits) != e.Seen {
			return deadletter.Record{}, deadletter.RefuseEdited(number, e.Seen, len(l.edits))
		}
		edited, err := e.Apply(l.Message)
		if err != nil {
			return deadletter.Record{}, fmt.Errorf("edit dead letter %d: %w", number, err)
		}
		l.edits = append(l.edits, deadletter.Edited{At: now(), By: e.By, Why: e.Why, Payload: l.Message.Payload, Headers: l.Message.Headers})
		if e.Headers != nil {
			l.undecodable = nil
		}
		l.Message = clone(edited)
		l.size = edited.Size()
		return db.shown(l), nil
	})
}

// ListEdits implements deadletter.RepairStore.
func (s *Store) ListEdits(ctx context.Context, number int64) ([]deadletter.Edited, error) {
	return do(ctx, s, "ListEdits", func(db *database) ([]deadletter.Edited, error) {
		l, err := db.letter(number)
		if err != nil {
			return nil, err
		}
		return cloneEdits(l.edits), nil
	})
}

func cloneEdits(edits []deadletter.Edited) []deadletter.Edited {
	out := slices.Clone(edits)
	for i := range out {
		out[i].Payload, out[i].Headers = slices.Clone(out[i].Payload), maps.Clone(out[i].Headers)
	}
	return out
}

// CountCauses implements deadletter.RepairStore.
func (s *Store) CountCauses(ctx context.Context, f deadletter.Filter, limit int) ([]deadletter.CauseCount, error) {
	return do(ctx, s, "CountCauses", func(db *database) ([]deadletter.CauseCount, error) {
		type group struct{ relay, messageType, fingerprint string }
		counts := make(map[group]deadletter.CauseCount)
		for _, l := range db.choose(f, 0, 0) {
			g := group{l.Relay, l.Message.Type, deadletter.Fingerprint(l.Cause)}
			c, known := counts[g]
			if !known || l.DiedAt.Before(c.Oldest) {
				c.Oldest = l.DiedAt
			}
			if l.DiedAt.After(c.Newest) {
				c.Newest = l.DiedAt
			}
			c.Relay, c.Type, c.Fingerprint, c.DeadLetters = g.relay, g.messageType, g.fingerprint, c.DeadLetters+1
			c.Number, c.Reason, c.Cause = l.Number, l.Reason, l.Cause // in ascending order of numbers: the last is the newest
			counts[g] = c
		}
		out := slices.SortedFunc(maps.Values(counts), func(a, b deadletter.CauseCount) int {
			return cmp.Or(cmp.Compare(b.DeadLetters, a.DeadLetters), cmp.Compare(a.Number, b.Number))
		})
		return out[:min(len(out), limit)], nil
	})
}

// ImportDead implements deadletter.RepairStore.
func (s *Store) ImportDead(ctx context.Context, letters []deadletter.Archived) (int, error) {
	return do(ctx, s, "ImportDead", func(db *database) (int, error) {
		n := 0
		for _, a := range letters {
			if !slices.ContainsFunc(db.letters, func(l *deadRow) bool { return l.same(a.Record) }) {
				db.importLetter(a)
				n++
			}
		}
		return n, nil
	})
}

// same reports whether a dead letter is this one or a copy of it.
func (l *deadRow) same(other deadletter.Record) bool {
	return l.Relay == other.Relay && l.Message.ID == other.Message.ID && l.DiedAt.Equal(stamp(other.DiedAt))
}

func (db *database) importLetter(a deadletter.Archived) {
	db.lastNumber++
	l := &deadRow{Record: a.Record, edits: cloneEdits(a.Before)}
	m := clone(a.Message)
	m.Sequence, m.Attempt, m.CreatedAt = deadletter.ImportedSequence(db.lastNumber), 0, stamp(m.CreatedAt)
	m.Time, m.DeliverAt, m.DeliverAfter = stamp(m.Time), stamp(m.DeliverAt), 0
	l.Number, l.Message, l.size, l.Redrive = db.lastNumber, m, m.Size(), 0
	l.Partition = postrider.PartitionOf(m.Key, m.ID, len(db.log))
	l.Cause, l.DiedAt, l.ResolvedAt = cut(l.Cause), stamp(l.DiedAt), stamp(l.ResolvedAt)
	l.History = slices.Clone(l.History)
	if l.Unreadable != "" {
		l.undecodable = errors.New(l.Unreadable)
	}
	db.letters = append(db.letters, l)
	if r := db.relays[l.Relay]; r != nil {
		r.latest[m.Sequence] = l
	}
}
