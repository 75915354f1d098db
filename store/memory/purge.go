package memory

import (
	"context"
	"slices"

	"github.com/postrider/postrider/store"
)

// resolved reports whether a query selects a dead letter.
func resolved(q store.ResolvedQuery, l *deadRow) bool {
	return l.State != store.DeadOpen && l.ResolvedAt.Before(q.Before) && (q.Relay == "" || q.Relay == l.Relay) &&
		l.Number > q.After
}

// CountResolved implements store.Reader.
func (r records) CountResolved(_ context.Context, q store.ResolvedQuery) (n int64, _ error) {
	for _, l := range r.db.deadRows {
		if resolved(q, l) {
			n++
		}
	}
	return n, nil
}

// RemoveResolved implements store.Writer.
func (r records) RemoveResolved(_ context.Context, q store.ResolvedQuery) (removed int, last int64, err error) {
	left := q.Limit
	r.db.deadRows = slices.DeleteFunc(r.db.deadRows, func(l *deadRow) bool {
		if err != nil || left == 0 || !resolved(q, l) {
			return false
		}
		left, last = left-1, l.Number
		var unread bool
		if unread, err = r.db.unread(l); unread || err != nil {
			return false
		}
		removed++
		if rel := r.db.relays[l.Relay]; rel != nil && rel.latest[l.Message.Sequence] == l {
			delete(rel.latest, l.Message.Sequence)
		}
		return true
	})
	return removed, last, err
}

// unread reports whether a relay may read the message of a dead letter from the log again.
func (db *database) unread(l *deadRow) (bool, error) {
	row, rel := db.log[l.Partition].find(l.Message.Sequence), db.relays[l.Relay]
	switch {
	case row == nil || db.side(l.Relay) == store.KindConsumer:
		return false, nil
	case rel == nil || rel.cursors[l.Partition] == nil:
		return true, nil
	}
	at, err := parseCursor(rel.cursors[l.Partition].cursor)
	return !at.delivered(row), err
}
