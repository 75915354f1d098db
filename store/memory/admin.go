package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// Repartition implements store.Administrator.
func (s *Store) Repartition(ctx context.Context, n int) error {
	if n < 1 || n > store.MaxPartitions {
		return fmt.Errorf("repartition: %d partitions: it may be 1 to %d", n, store.MaxPartitions)
	}
	_, err := do(ctx, s, "Repartition", func(db *database) (struct{}, error) {
		if err := db.checkIdle(now()); err != nil {
			return struct{}{}, fmt.Errorf("repartition: %w", err)
		}
		db.repartition(n)
		s.partitions.Store(int64(n))
		return struct{}{}, nil
	})
	if err == nil {
		s.Wake()
	}
	return err
}

// current returns an error if the number of partitions is not the one that this Store was opened with.
func (s *Store) current(db *database) error {
	if n := s.partitions.Load(); n != int64(len(db.log)) {
		return fmt.Errorf("%w: from %d to %d", store.ErrRepartitioned, n, len(db.log))
	}
	return nil
}

// checkIdle makes sure that no process works on the outbox, no transaction that has written is open, and every relay has
// delivered everything.
func (db *database) checkIdle(at time.Time) error {
	if len(db.active)+len(db.locks) > 0 {
		return fmt.Errorf("%w: a transaction is open that has written; end it", store.ErrInUse)
	}
	names := slices.Sorted(maps.Keys(db.relays))
	for _, name := range names {
		if err := db.checkStopped(name, at); err != nil {
			return err
		}
	}
	for _, name := range names {
		for partition, c := range db.relays[name].cursors {
			if c == nil {
				continue
			}
			row, err := db.cursorRow(name, db.relays[name], partition, at)
			if err != nil {
				return err
			}
			if row.Undelivered > 0 {
				return fmt.Errorf("%w: %s in partition %d", store.ErrUndelivered, name, partition)
			}
		}
	}
	return nil
}

func (db *database) checkStopped(name string, at time.Time) error {
	r := db.relays[name]
	if r == nil {
		return nil
	}
	for _, o := range r.owners {
		if o.aliveUntil.After(at) {
			return fmt.Errorf("%w: %s of relay %s on host %s", store.ErrAlive, o.ID, name, o.Host)
		}
	}
	return nil
}

func (db *database) repartition(n int) {
	var rows []*row
	for _, p := range db.log {
		rows = append(rows, p.rows...)
	}
	slices.SortFunc(rows, func(a, b *row) int { return cmp.Compare(a.seq, b.seq) })
	db.log = newLog(n)
	for _, r := range rows {
		r.partition = postrider.PartitionOf(r.msg.Key, r.msg.ID, n)
		db.log[r.partition].add(r)
	}
	for _, r := range db.relays {
		r.repartition(n, db.present())
	}
	for _, l := range db.deadRows {
		l.Partition = postrider.PartitionOf(l.Message.Key, l.Message.ID, n)
	}
	for _, d := range db.decisions {
		d.Partition = postrider.PartitionOf(d.Key, d.MessageID, n)
	}
}

// repartition moves parked messages and held keys to their new partitions, and every cursor to the end of the log; a consumer has
// none. Partition 0 takes over the counters.
func (r *relayState) repartition(n int, end store.Cursor) {
	old := r.parked
	r.parked = nil
	for range n {
		r.parked = append(r.parked, newParkedSet())
	}
	for _, set := range old {
		for _, row := range set.rows {
			r.parked[postrider.PartitionOf(row.msg.Key, row.msg.ID, n)].put(row)
		}
		for key, h := range set.held {
			r.parked[postrider.PartitionOf(key, "", n)].putHeld(h)
		}
	}
	var sum cursorState
	for _, c := range r.cursors {
		if c == nil {
			r.cursors = make([]*cursorState, n) // the relay has not begun
			return
		}
		sum.delivered, sum.failed = sum.delivered+c.delivered, sum.failed+c.failed
		sum.number = max(sum.number, c.number)
		if c.settled.After(sum.settled) {
			sum.settled = c.settled
		}
	}
	if r.kind == store.KindConsumer {
		end = store.Cursor{}
	}
	r.cursors = nil
	for range n {
		r.cursors = append(r.cursors, &cursorState{cursor: end, number: sum.number, settled: sum.settled})
	}
	r.cursors[0].delivered, r.cursors[0].failed = sum.delivered, sum.failed
}
