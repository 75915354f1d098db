package schedule

import (
	"maps"
	"slices"

	"github.com/postrider/postrider/store"
)

// database is what a store keeps of one partition, as plain data.
type database struct {
	cursor            store.Cursor
	number            int64
	delivered, failed int64
	parked            map[int64]row
	dead              map[int64]bool // whether it waits for an operator
	held              map[string]heldRow
}

type row struct {
	key   string
	waits bool
}

type heldRow struct {
	blocking  int64
	undecided bool
}

func (d *database) clone() *database {
	c := *d
	c.parked, c.dead, c.held = maps.Clone(d.parked), maps.Clone(d.dead), maps.Clone(d.held)
	return &c
}

// apply applies a settlement as a store does: parked, dead, removed, held, release.
func (d *database) apply(s *store.Settlement) (released []string) {
	if s.Number > 0 {
		d.number = s.Number
	}
	if s.Moved {
		d.cursor = s.Cursor
	}
	for _, p := range s.Parked {
		if _, is := d.parked[p.Sequence]; is || p.FromLog {
			d.parked[p.Sequence] = row{p.Key, p.Waits}
		}
	}
	for _, x := range s.Dead {
		if _, is := d.parked[x.Sequence]; is || x.FromLog {
			delete(d.parked, x.Sequence)
			d.dead[x.Sequence] = true
		}
	}
	for _, seq := range s.Removed {
		delete(d.parked, seq)
	}
	for _, h := range s.Held {
		d.held[h.Key] = heldRow{h.Sequence, h.UntilDecided && d.dead[h.Sequence]}
	}
	for _, key := range s.Release {
		if len(d.run(key)) > 0 {
			d.held[key] = heldRow{blocking: d.held[key].blocking}
			continue
		}
		delete(d.held, key)
		released = append(released, key)
	}
	d.delivered += s.DeliveredCount
	d.failed += s.FailedCount
	return released
}

// run returns the parked messages of a held key.
func (d *database) run(key string) []int64 {
	var out []int64
	for seq, r := range d.parked {
		if r.waits && r.key == key {
			out = append(out, seq)
		}
	}
	slices.Sort(out)
	return out
}
