package memory

import (
	"maps"
	"slices"
)

// before returns a function that undoes what a store.Writer changes from now on. Of the log, of attempts and of what consumers processed,
// which can be large, the Writer's own methods say how to undo it (records.onError).
func (db *database) before() (undo func()) {
	deadRows, redrives, decisions := kept(db.deadRows), kept(db.redrives), kept(db.decisions)
	lastNumber, lastRedrive := db.lastNumber, db.lastRedrive
	records, relays := maps.Clone(db.records), maps.Clone(db.relays)
	var states []func()
	for _, r := range relays {
		states = append(states, r.before())
	}
	return func() {
		db.deadRows, db.redrives, db.decisions = deadRows(), redrives(), decisions()
		db.lastNumber, db.lastRedrive = lastNumber, lastRedrive
		db.records, db.relays = records, relays
		for _, undo := range states {
			undo()
		}
	}
}

// before is database.before for a relay.
func (r *relayState) before() (undo func()) {
	cursors, latest := kept(r.cursors), maps.Clone(r.latest)
	var parked []*parkedSet
	for _, set := range r.parked {
		parked = append(parked, set.copy())
	}
	return func() {
		r.cursors, r.latest = cursors(), latest
		for i, set := range parked {
			*r.parked[i] = *set
		}
	}
}

// kept returns a function that returns the same rows, with the values that they have now.
func kept[T any](rows []*T) func() []*T {
	rows, values := slices.Clone(rows), make([]T, len(rows))
	for i, row := range rows {
		if row != nil {
			values[i] = *row
		}
	}
	return func() []*T {
		for i, row := range rows {
			if row != nil {
				*row = values[i]
			}
		}
		return rows
	}
}
