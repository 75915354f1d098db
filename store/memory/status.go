package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/store"
)

// Status implements store.StatusReader.
func (s *Store) Status(ctx context.Context) (store.Status, error) {
	return do(ctx, s, "Status", func(db *database) (store.Status, error) {
		out := store.Status{Now: now(), Partitions: len(db.log)}
		for _, name := range slices.Sorted(maps.Keys(db.relays)) {
			st, err := db.relayStatus(name, out.Now)
			if err != nil {
				return store.Status{}, err
			}
			out.Relays = append(out.Relays, st)
		}
		out.Unrouted = db.unrouted()
		return out, nil
	})
}

func (db *database) relayStatus(name string, at time.Time) (store.RelayStatus, error) {
	r := db.relays[name]
	owners, err := r.ownerStatus(at)
	if err != nil {
		return store.RelayStatus{}, err
	}
	out := store.RelayStatus{Name: name, Kind: cmp.Or(r.kind, store.KindRelay), Topics: db.filter(name, at).Topics, Owners: owners}
	present := db.snapshot()
	for partition, c := range r.cursors {
		if c == nil {
			continue
		}
		ps, err := db.partitionStatus(r, partition, present, at)
		if err != nil {
			return store.RelayStatus{}, err
		}
		out.Partitions = append(out.Partitions, ps)
		out.Backlog = add(out.Backlog, ps.Backlog)
		out.Age = max(out.Age, ps.Age)
		out.OldestUndelivered = max(out.OldestUndelivered, ps.Age)
		out.Delivered += c.delivered
		out.Failed += c.failed
	}
	for _, parked := range r.parked {
		out.Parked = add(out.Parked, store.Count{N: int64(len(parked.rows))})
		out.Held = add(out.Held, store.Count{N: int64(len(parked.held))})
		for _, row := range parked.rows {
			out.OldestParked = max(out.OldestParked, at.Sub(row.parkedAt))
			if row.reason != store.ParkDelayed {
				out.OldestUndelivered = max(out.OldestUndelivered, at.Sub(row.parkedAt))
			}
		}
		for _, h := range parked.held {
			out.OldestHeld = max(out.OldestHeld, at.Sub(h.since))
		}
	}
	dead := db.choose(store.DeadQuery{DeadFilter: store.DeadFilter{Relay: name}})
	out.Dead = add(out.Dead, store.Count{N: int64(len(dead))})
	if len(dead) > 0 {
		out.OldestDead = at.Sub(dead[0].DiedAt)
	}
	return out, nil
}

// partitionStatus counts the messages that are committed and neither settled nor parked.
func (db *database) partitionStatus(r *relayState, partition int, present snapshot, at time.Time) (store.PartitionStatus, error) {
	state, log, parked := r.cursors[partition], db.log[partition], r.parked[partition]
	c, err := parseCursor(state.cursor)
	if err != nil {
		return store.PartitionStatus{}, err
	}
	out := store.PartitionStatus{
		Partition: partition, Owner: db.holder(r, state, at), Settlements: state.number, Position: c.position,
		SettledAgo: at.Sub(state.settled),
	}
	if out.Owner != "" {
		out.LeaseLeft = r.owners[out.Owner].aliveUntil.Sub(at)
	}
	if r.kind == store.KindConsumer {
		return out, nil
	}
	count := func(row *row) bool {
		if parked.rows[row.seq] == nil {
			out.Backlog = add(out.Backlog, store.Count{N: 1})
			out.Age = max(out.Age, at.Sub(row.msg.CreatedAt))
		}
		return !out.Backlog.AtLeast
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
	return out, nil
}

// add adds counts, up to store.CountLimit.
func add(a, b store.Count) store.Count {
	n := a.N + b.N
	return store.Count{N: min(n, store.CountLimit), AtLeast: a.AtLeast || b.AtLeast || n > store.CountLimit}
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
				if len(cursors) > 0 && !slices.ContainsFunc(cursors, func(c cursor) bool { return !c.delivered(row) }) {
					delivered = append(delivered, row)
				}
			}
		}
		slices.SortFunc(delivered, func(a, b *row) int { return cmp.Compare(a.seq, b.seq) })
		at, size, n := now(), db.bytes, 0
		for _, row := range delivered {
			if at.Sub(row.msg.CreatedAt) < keep.For && (keep.MaxBytes == 0 || size <= keep.MaxBytes) {
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
