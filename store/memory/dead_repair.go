package memory

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// EditDead implements store.Writer.
func (r records) EditDead(_ context.Context, number int64, e store.Edit) error {
	l, err := r.db.deadRowOf(number)
	if err != nil {
		return err
	}
	edited := clone(l.Message)
	l.edits = append(l.edits, store.Edited{At: now(), By: e.By, Why: e.Why, Payload: l.Message.Payload, Headers: l.Message.Headers})
	if e.Payload != nil {
		edited.Payload = slices.Clone(e.Payload)
	}
	if e.Headers != nil {
		edited.Headers, l.undecodable = maps.Clone(e.Headers), nil
	}
	l.Message, l.size = edited, edited.Size()
	return nil
}

// Edits implements store.Reader.
func (r records) Edits(_ context.Context, number int64) ([]store.Edited, error) {
	l, err := r.db.deadRowOf(number)
	if err != nil {
		return nil, err
	}
	return cloneEdits(l.edits), nil
}

func cloneEdits(edits []store.Edited) []store.Edited {
	out := slices.Clone(edits)
	for i := range out {
		out[i].Payload, out[i].Headers = slices.Clone(out[i].Payload), maps.Clone(out[i].Headers)
	}
	return out
}

// CountCauses implements store.Reader.
func (r records) CountCauses(_ context.Context, q store.DeadQuery) ([]store.CauseCount, error) {
	type group struct{ relay, messageType, fingerprint string }
	counts := make(map[group]store.CauseCount)
	limit := q.Limit
	q.Limit = 0
	for _, l := range r.db.choose(q) {
		g := group{l.Relay, l.Message.Type, store.Fingerprint(l.Cause)}
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
	out := slices.SortedFunc(maps.Values(counts), func(a, b store.CauseCount) int {
		return cmp.Or(cmp.Compare(b.DeadLetters, a.DeadLetters), cmp.Compare(a.Number, b.Number))
	})
	return out[:min(len(out), limit)], nil
}

// ImportDead implements store.Writer.
func (r records) ImportDead(_ context.Context, a store.ArchivedDead) (bool, error) {
	if slices.ContainsFunc(r.db.deadRows, func(l *deadRow) bool { return l.same(a.DeadLetter) }) {
		return false, nil
	}
	r.db.importDead(a)
	return true, nil
}

// same reports whether a dead letter is this one or a copy of it.
func (l *deadRow) same(other store.DeadLetter) bool {
	return l.Relay == other.Relay && l.Message.ID == other.Message.ID && l.DiedAt.Equal(stamp(other.DiedAt))
}

func (db *database) importDead(a store.ArchivedDead) {
	db.lastNumber++
	l := &deadRow{DeadLetter: a.DeadLetter, edits: cloneEdits(a.Before)}
	m := clone(a.Message)
	m.Sequence, m.Attempt, m.CreatedAt = store.ImportedSequence(db.lastNumber), 0, stamp(m.CreatedAt)
	m.Time, m.DeliverAt, m.DeliverAfter = stamp(m.Time), stamp(m.DeliverAt), 0
	l.Number, l.Message, l.size, l.Redrive = db.lastNumber, m, m.Size(), 0
	l.Partition = postrider.PartitionOf(m.Key, m.ID, len(db.log))
	l.Cause, l.DiedAt, l.ResolvedAt = cut(l.Cause), stamp(l.DiedAt), stamp(l.ResolvedAt)
	l.History = slices.Clone(l.History)
	if l.Unreadable != "" {
		l.undecodable = errors.New(l.Unreadable)
	}
	db.deadRows = append(db.deadRows, l)
	if r := db.relays[l.Relay]; r != nil {
		r.latest[m.Sequence] = l
	}
}
