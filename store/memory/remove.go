package memory

import (
	"context"
	"maps"
	"slices"

	"github.com/postrider/postrider/store"
)

// CountKept implements store.HeldReader.
func (r records) CountKept(_ context.Context, name string) (k store.KeptRecords, _ error) {
	for _, l := range r.db.deadRows {
		if l.Relay == name {
			k.DeadLetters++
		}
	}
	for _, rows := range r.db.attempts {
		for _, row := range rows {
			if row.Relay == name {
				k.Attempts++
			}
		}
	}
	if in := r.db.inboxes[name]; in != nil {
		k.Processed = int64(len(in.claims) + len(in.versions))
		k.Positions = int64(len(in.positions))
	}
	return k, nil
}

// RemoveKept implements store.HeldWriter. It removes everything at once.
func (r records) RemoveKept(ctx context.Context, name string, _ int) (int, error) {
	if r.db.relays[name] != nil {
		return 0, store.ErrRegistered
	}
	k, err := r.CountKept(ctx, name)
	if err != nil {
		return 0, err
	}
	r.db.deadRows = slices.DeleteFunc(r.db.deadRows, func(l *deadRow) bool { return l.Relay == name })
	attempts := maps.Clone(r.db.attempts)
	r.onError(func() { r.db.attempts = attempts })
	for id, rows := range attempts {
		r.db.attempts[id] = slices.DeleteFunc(slices.Clone(rows), func(row attemptRow) bool { return row.Relay == name })
	}
	maps.DeleteFunc(r.db.attempts, func(_ string, rows []attemptRow) bool { return len(rows) == 0 })
	if in := r.db.inboxes[name]; in != nil {
		before := inboxState{claims: maps.Clone(in.claims), versions: maps.Clone(in.versions), positions: maps.Clone(in.positions)}
		r.onError(func() {
			maps.Copy(in.claims, before.claims)
			maps.Copy(in.versions, before.versions)
			maps.Copy(in.positions, before.positions)
		})
		clear(in.claims)
		clear(in.versions)
		clear(in.positions)
	}
	return int(k.Total()), nil
}
