package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// Status implements store.StatusReader.
func (s *Store) Status(ctx context.Context) (store.Status, error) {
	return do(ctx, s, "Status", func(db *database) (store.Status, error) {
		rows := stored.StatusRows{Now: now(), Partitions: len(db.log), Topics: make(map[string][]string), Unrouted: db.unrouted()}
		var err error
		if rows.Pauses, err = (records{db: db}).ListRecords(ctx, stored.Pauses); err != nil {
			return store.Status{}, err
		}
		for name, r := range db.relays {
			rows.Relays = append(rows.Relays, db.relayRow(name, r, rows.Now))
			rows.Topics[name] = db.filter(name, rows.Now).Topics
			for _, o := range r.owners {
				if o.member {
					rows.Processes = append(rows.Processes, stored.ProcessRow{Relay: name, OwnerStatus: o.status(rows.Now), Reached: o.reached})
				}
			}
			for partition, c := range r.cursors {
				if c == nil {
					continue
				}
				row, err := db.cursorRow(name, r, partition, rows.Now)
				if err != nil {
					return store.Status{}, err
				}
				rows.Cursors = append(rows.Cursors, row)
			}
		}
		return rows.Status(), nil
	})
}

func (db *database) relayRow(name string, r *relayState, at time.Time) stored.RelayRow {
	out := stored.RelayRow{Relay: name}
	for _, parked := range r.parked {
		out.Parked += int64(len(parked.rows))
		out.Held += int64(len(parked.held))
		for _, row := range parked.rows {
			out.OldestParked = max(out.OldestParked, at.Sub(row.parkedAt))
			if row.reason != store.ParkDelayed {
				out.OldestWaiting = max(out.OldestWaiting, at.Sub(row.parkedAt))
			}
		}
		for _, h := range parked.held {
			out.OldestHeld = max(out.OldestHeld, at.Sub(h.since))
		}
	}
	dead := db.choose(store.DeadQuery{DeadFilter: store.DeadFilter{Relay: name}})
	if out.Dead = int64(len(dead)); out.Dead > 0 {
		out.OldestDead = at.Sub(dead[0].DiedAt)
	}
	return out
}

// cursorRow counts the messages that are committed and neither settled nor parked.
func (db *database) cursorRow(name string, r *relayState, partition int, at time.Time) (stored.CursorRow, error) {
	state, log, parked, present := r.cursors[partition], db.log[partition], r.parked[partition], db.snapshot()
	c, err := parseCursor(state.cursor)
	if err != nil {
		return stored.CursorRow{}, err
	}
	out := stored.CursorRow{
		Relay: name, Kind: cmp.Or(r.kind, store.KindRelay), Delivered: state.delivered, Failed: state.failed, PartitionStatus: store.PartitionStatus{
			Partition: partition, Owner: db.holder(r, state, at), Settlements: state.number, Position: c.position,
			SettledAgo: at.Sub(state.settled),
		},
	}
	if out.Owner != "" {
		out.LeaseLeft = r.owners[out.Owner].aliveUntil.Sub(at)
	}
	if r.kind == store.KindConsumer {
		return out, nil
	}
	count := func(row *row) bool {
		if parked.rows[row.seq] == nil {
			out.Undelivered++
			out.Age = max(out.Age, at.Sub(row.msg.CreatedAt))
		}
		return out.Undelivered <= store.CountLimit
	}
	for _, row := range log.late(c, present, store.CountLimit+1) {
		if !c.delivered(row) {
			count(row)
		}
	}
	for row := range log.fresh(c.position, present) {
		if !count(row) {
			break
		}
	}
	if out.More = out.Undelivered > store.CountLimit; out.More {
		out.Undelivered = store.CountLimit
	}
	return out, nil
}

// Maintain implements store.Maintainer.
func (s *Store) Maintain(ctx context.Context, keep store.Retention) (store.Maintained, error) {
	return do(ctx, s, "Maintain", func(db *database) (store.Maintained, error) {
		var delivered []*row
		for partition, log := range db.log {
			cursors, err := db.cursors(partition)
			if err != nil {
				return store.Maintained{}, err
			}
			for _, row := range log.rows {
				if (len(cursors) > 0 || keep.WithoutRelay) && !slices.ContainsFunc(cursors, func(c cursor) bool { return !c.delivered(row) }) {
					delivered = append(delivered, row)
				}
			}
		}
		slices.SortFunc(delivered, func(a, b *row) int { return cmp.Compare(a.seq, b.seq) })
		if db.underLegalHold() {
			delivered = nil
		}
		at, size, n := now(), db.bytes, 0
		for _, row := range delivered {
			if keep.KeepFrom > 0 && row.seq >= keep.KeepFrom || at.Sub(row.msg.CreatedAt) < keep.For && (keep.MaxBytes == 0 || size <= keep.MaxBytes) {
				break
			}
			size -= int64(row.size)
			n++
		}
		db.remove(delivered[:n])
		db.purgeRedrives(keep.Redrives, at)
		db.decisions = slices.DeleteFunc(db.decisions, func(d *decision) bool {
			return d.State != store.DecisionOpen && at.Sub(d.done) > 24*time.Hour
		})
		db.removeUnrouted(at)
		return store.Maintained{Dropped: int64(n)}, nil
	})
}

// cursors returns the cursors in a partition of all relays that have registered.
func (db *database) cursors(partition int) ([]cursor, error) {
	var out []cursor
	for _, r := range db.relays {
		if r.kind != store.KindRelay {
			continue
		}
		c, err := parseCursor(r.cursors[partition].cursor)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}
