package memory

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// EraseLogged implements store.EraseWriter.
func (r records) EraseLogged(_ context.Context, messages []store.LoggedMessage) (n int, _ error) {
	for _, m := range messages {
		row := r.db.log[m.Partition].find(m.Sequence)
		if row == nil || row.msg.Type == store.ErasedType {
			continue
		}
		if err := r.db.endUndelivered(m.Partition, row); err != nil {
			return n, err
		}
		before := *row
		r.onError(func() { *row = before })
		row.msg, row.undecodable, row.availableAt = store.Erased(row.msg), nil, time.Time{}
		r.removeAttempts(m.ID)
		n++
	}
	return n, nil
}

// endUndelivered ends the leases of the relays that have not delivered a row of the log.
func (db *database) endUndelivered(partition int, row *row) error {
	for _, rel := range db.relays {
		c := rel.cursors[partition]
		if c == nil || rel.kind == store.KindConsumer {
			continue
		}
		at, err := parseCursor(c.cursor)
		if err != nil {
			return err
		}
		if !at.delivered(row) {
			c.token = ""
		}
	}
	return nil
}

// EraseParked implements store.EraseWriter.
func (r records) EraseParked(_ context.Context, f store.EraseFilter, limit int) (out []store.ErasedParked, _ error) {
	for _, name := range slices.Sorted(maps.Keys(r.db.relays)) {
		rel := r.db.relays[name]
		for partition, set := range rel.parked {
			for _, seq := range slices.Sorted(maps.Keys(set.rows)) {
				m := set.rows[seq].msg
				if len(out) == limit || !f.Matches(m.Key, m.Tenant, m.ID) {
					continue
				}
				if err := r.db.untaken(name, seq); err != nil {
					return nil, err
				}
				set.take(seq)
				if c := rel.cursors[partition]; c != nil {
					c.token = ""
				}
				r.removeAttempts(m.ID)
				out = append(out, store.ErasedParked{Relay: name, Key: m.Key})
			}
		}
	}
	return out, nil
}

// EraseDead implements store.EraseWriter.
func (r records) EraseDead(_ context.Context, f store.EraseFilter, limit int) (n int, _ error) {
	for _, l := range r.db.deadRows {
		if n == limit || l.State == store.DeadOpen || !erasable(f, l.Message) {
			continue
		}
		l.Message, l.undecodable, l.Cause, l.History, l.edits = store.Erased(l.Message), nil, "", nil, nil
		r.removeAttempts(l.Message.ID)
		n++
	}
	return n, nil
}

// removeAttempts removes the recorded attempts of a message.
func (r records) removeAttempts(id string) {
	if rows, known := r.db.attempts[id]; known {
		r.onError(func() { r.db.attempts[id] = rows })
		delete(r.db.attempts, id)
	}
}

// CountErasable implements store.EraseReader.
func (r records) CountErasable(_ context.Context, f store.EraseFilter) (parked, dead int64, _ error) {
	for _, rel := range r.db.relays {
		for _, set := range rel.parked {
			for _, row := range set.rows {
				if erasable(f, row.msg) {
					parked++
				}
			}
		}
	}
	for _, l := range r.db.deadRows {
		if erasable(f, l.Message) {
			dead++
		}
	}
	return parked, dead, nil
}

// erasable reports whether a filter selects a message that is not erased.
func erasable(f store.EraseFilter, m *postrider.Message) bool {
	return m.Type != store.ErasedType && f.Matches(m.Key, m.Tenant, m.ID)
}
