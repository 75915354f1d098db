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

// place tells the messages of dead letters from others.
type place struct {
	relay string
	seq   int64
}

func placeOf(l *deadRow) place { return place{l.Relay, l.Message.Sequence} }

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
func (r records) RemoveResolved(ctx context.Context, q store.ResolvedQuery) (removed int, last int64, _ error) {
	left, redriven := q.Limit, make(map[place]bool)
	for _, l := range r.db.deadRows {
		if _, err := r.Redrive(ctx, l.Redrive); err == nil {
			redriven[placeOf(l)] = true
		}
	}
	r.db.deadRows = slices.DeleteFunc(r.db.deadRows, func(l *deadRow) bool {
		if left == 0 || !resolved(q, l) {
			return false
		}
		left, last = left-1, l.Number
		if redriven[placeOf(l)] || r.db.side(l.Relay) == store.KindRelay && r.db.log[l.Partition].find(l.Message.Sequence) != nil {
			return false
		}
		removed++
		if rel := r.db.relays[l.Relay]; rel != nil && rel.latest[l.Message.Sequence] == l {
			delete(rel.latest, l.Message.Sequence)
		}
		return true
	})
	return removed, last, nil
}
