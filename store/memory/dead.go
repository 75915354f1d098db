package memory

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/postrider/postrider/store"
)

// deadRow is a dead letter and what its message needs to be parked again.
type deadRow struct {
	store.DeadLetter
	undecodable error
	size        int
	edits       []store.Edited
}

// deadLetter adds a dead letter.
func (db *database) deadLetter(name string, partition int, row *parkedRow, reason, cause string, attempts int, at time.Time) *deadRow {
	db.lastNumber++
	l := &deadRow{undecodable: row.undecodable, size: row.size, DeadLetter: store.DeadLetter{
		Number: db.lastNumber, Relay: name, Partition: partition, Message: row.msg,
		Reason: reason, Cause: cut(cause), Attempts: attempts, History: row.history,
		DiedAt: at, Redrives: row.redrives, State: store.DeadOpen,
	}}
	db.deadRows = append(db.deadRows, l)
	db.relay(name).latest[row.msg.Sequence] = l
	return l
}

// shown returns a copy that the caller can keep.
func (db *database) shown(l *deadRow) store.DeadLetter {
	c := l.DeadLetter
	c.Message = clone(c.Message)
	c.History = slices.Clone(c.History)
	c.Side, c.Edits = db.side(l.Relay), len(l.edits)
	if l.undecodable != nil {
		c.Unreadable = l.undecodable.Error()
	}
	return c
}

// side reports whether a name is a consumer's or a relay's.
func (db *database) side(name string) store.Kind {
	if r := db.relays[name]; r != nil && r.kind == store.KindConsumer {
		return store.KindConsumer
	}
	return store.KindRelay
}

func (db *database) chosen(f store.DeadFilter, l *deadRow) bool {
	m, state := l.Message, cmp.Or(f.State, store.DeadOpen)
	is := func(want, got string) bool { return want == "" || want == got }
	return is(f.Relay, l.Relay) && is(f.Topic, m.Topic) && is(f.Type, m.Type) && is(f.Key, m.Key) &&
		is(f.Tenant, m.Tenant) && is(f.Reason, l.Reason) && is(f.MessageID, m.ID) &&
		strings.Contains(l.Cause, f.Cause) && (f.Side == "" || f.Side == db.side(l.Relay)) &&
		(f.Fingerprint == "" || f.Fingerprint == store.Fingerprint(l.Cause)) &&
		(f.Redrive == 0 || f.Redrive == l.Redrive) &&
		(f.From.IsZero() || !l.DiedAt.Before(f.From)) && (f.To.IsZero() || l.DiedAt.Before(f.To)) &&
		(state == store.DeadAny || state == l.State) &&
		(len(f.Numbers) == 0 || slices.Contains(f.Numbers, l.Number))
}

// choose returns the dead letters that a query selects.
func (db *database) choose(q store.DeadQuery) []*deadRow {
	var out []*deadRow
	for _, l := range db.deadRows[db.deadUpTo(q.After):] {
		if q.UpTo > 0 && l.Number > q.UpTo {
			break
		}
		if db.chosen(q.DeadFilter, l) {
			if out = append(out, l); len(out) == q.Limit {
				break
			}
		}
	}
	return out
}

func (db *database) deadUpTo(number int64) int {
	return sort.Search(len(db.deadRows), func(i int) bool { return db.deadRows[i].Number > number })
}

func (db *database) deadRowOf(number int64) (*deadRow, error) {
	if i := db.deadUpTo(number - 1); i < len(db.deadRows) && db.deadRows[i].Number == number {
		return db.deadRows[i], nil
	}
	return nil, fmt.Errorf("no dead letter has the number %d", number)
}

func (l *deadRow) close(state store.DeadState, by, resolution string, at time.Time) {
	l.State, l.ResolvedAt, l.ResolvedBy, l.Resolution = state, at, by, resolution
}

// waitsFor returns the key that is held until a decision about this dead letter, if there is one.
func (p *parkedSet) waitsFor(l *deadRow) *heldRow {
	if h := p.held[l.Message.Key]; h != nil && h.undecided && h.seq == l.Message.Sequence {
		return h
	}
	return nil
}
