package memory

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
)

// EditDead implements deadletter.Writer.
func (r records) EditDead(_ context.Context, number int64, e deadletter.Edit) error {
	l, err := r.db.letter(number)
	if err != nil {
		return err
	}
	edited := clone(l.Message)
	l.edits = append(l.edits, deadletter.Edited{At: now(), By: e.By, Why: e.Why, Payload: l.Message.Payload, Headers: l.Message.Headers})
	if e.Payload != nil {
		edited.Payload = slices.Clone(e.Payload)
	}
	if e.Headers != nil {
		edited.Headers, l.undecodable = maps.Clone(e.Headers), nil
	}
	l.Message, l.size = edited, edited.Size()
	return nil
}

// Edits implements deadletter.Reader.
func (r records) Edits(_ context.Context, number int64) ([]deadletter.Edited, error) {
	l, err := r.db.letter(number)
	if err != nil {
		return nil, err
	}
	return cloneEdits(l.edits), nil
}

func cloneEdits(edits []deadletter.Edited) []deadletter.Edited {
	out := slices.Clone(edits)
	for i := range out {
		out[i].Payload, out[i].Headers = slices.Clone(out[i].Payload), maps.Clone(out[i].Headers)
	}
	return out
}

// CountCauses implements deadletter.Reader.
func (r records) CountCauses(_ context.Context, f deadletter.Filter, limit int) ([]deadletter.CauseCount, error) {
	type group struct{ relay, messageType, fingerprint string }
	counts := make(map[group]deadletter.CauseCount)
	for _, l := range r.db.choose(deadletter.Query{Filter: f}) {
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
}

// ImportDead implements deadletter.Writer.
func (r records) ImportDead(_ context.Context, a deadletter.Archived) (bool, error) {
	if slices.ContainsFunc(r.db.letters, func(l *deadRow) bool { return l.same(a.Record) }) {
		return false, nil
	}
	r.db.importLetter(a)
	return true, nil
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
