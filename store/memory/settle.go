package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/relay"
)

// Settle implements relay.LogStore. Delivered needs nothing here: the cursor says it.
func (s *Store) Settle(ctx context.Context, name string, owner relay.Owner, settlements []relay.Settlement) (relay.Settled, error) {
	return do(ctx, s, "Settle", func(db *database) (relay.Settled, error) {
		r, at := db.relay(name), now()
		for _, st := range settlements {
			if err := db.settleable(name, owner, st); err != nil {
				return relay.Settled{}, err
			}
		}
		var out relay.Settled
		for _, st := range settlements {
			c := r.lease(st.Partition, owner.ID, st.Epoch)
			if c == nil {
				out.Lost = append(out.Lost, st.Partition)
				continue
			}
			out.Released = append(out.Released, db.settleAll(name, c, st, at)...)
		}
		return out, nil
	})
}

// settleable says why a settlement cannot be applied, or has to wait. One whose lease is lost can: nothing happens.
func (db *database) settleable(name string, owner relay.Owner, st relay.Settlement) error {
	if err := db.check(st); err != nil {
		return err
	}
	r := db.relay(name)
	c := r.lease(st.Partition, owner.ID, st.Epoch)
	if c == nil {
		return nil
	}
	if err := db.checkFound(r, st, c.cursor.Position); err != nil {
		return err
	}
	return db.untakenSettlement(name, st)
}

// settleAll applies a settlement and returns the keys that are held no longer.
func (db *database) settleAll(name string, c *cursorState, st relay.Settlement, at time.Time) (released []string) {
	db.settle(name, st, at)
	if st.Moved {
		c.cursor = st.Cursor
	}
	c.settled = at
	c.delivered += st.DeliveredCount
	c.failed += st.FailedCount
	return db.relays[name].parked[st.Partition].release(st.Release, at)
}

// CommitSettled implements relay.TxStore.
func (s *Store) CommitSettled(ctx context.Context, tx *Tx, name string, owner relay.Owner, st relay.Settlement) ([]string, error) {
	released, err := do(ctx, s, "CommitSettled", func(db *database) ([]string, error) {
		if err := tx.usable(db); err != nil {
			return nil, err
		}
		if err := db.settleable(name, owner, st); err != nil {
			return nil, err
		}
		r := db.relay(name)
		c := r.lease(st.Partition, owner.ID, st.Epoch)
		if c == nil {
			return nil, relay.ErrLeaseLost
		}
		for _, seq := range st.Removed {
			if r.parked[st.Partition].rows[seq] == nil {
				return nil, relay.ErrNotParked
			}
		}
		at := now()
		tx.commit(at)
		return db.settleAll(name, c, st, at), nil
	})
	if err != nil {
		_ = s.Rollback(ctx, tx) // of what was committed it does nothing
	}
	return released, err
}

// check refuses a settlement that cannot be understood.
func (db *database) check(st relay.Settlement) error {
	if st.Partition < 0 || st.Partition >= len(db.log) {
		return fmt.Errorf("settle: there is no partition %d", st.Partition)
	}
	if st.Moved {
		if _, err := parseCursor(st.Cursor); err != nil {
			return fmt.Errorf("settle partition %d: %w", st.Partition, err)
		}
	}
	return nil
}

// checkFound refuses a settlement that would lose messages: those to be put aside that the stored cursor has not passed
// and that are nowhere. One that it has passed was put aside before, in a settlement whose answer was lost.
func (db *database) checkFound(r *relayState, st relay.Settlement, position int64) error {
	nowhere := func(fromLog bool, seq int64) bool {
		return fromLog && seq > position && db.log[st.Partition].find(seq) == nil &&
			r.parked[st.Partition].rows[seq] == nil && r.latest[seq] == nil
	}
	for _, p := range st.Parked {
		if nowhere(p.FromLog, p.Sequence) {
			return fmt.Errorf("settle: park message %d: it is not in the log of partition %d", p.Sequence, st.Partition)
		}
	}
	for _, d := range st.Dead {
		if nowhere(d.FromLog, d.Sequence) {
			return fmt.Errorf("settle: dead-letter message %d: it is not in the log of partition %d", d.Sequence, st.Partition)
		}
	}
	return nil
}

// settle applies what a settlement says about messages and held keys.
func (db *database) settle(name string, st relay.Settlement, at time.Time) {
	parked, log, latest := db.relays[name].parked[st.Partition], db.log[st.Partition], db.relays[name].latest
	for _, p := range st.Parked {
		// From the log comes nothing that has a dead letter: somebody has moved it on.
		row := source(parked, log, p.Sequence, p.FromLog && latest[p.Sequence] == nil, at)
		if row != nil && row.redrives == p.Redrives {
			parked.put(row.parkedAgain(p, at))
		}
	}
	for _, d := range st.Dead {
		if d.FromLog && latest[d.Sequence] != nil {
			continue // the same settlement came before, and its answer was lost
		}
		if row := source(parked, log, d.Sequence, d.FromLog, at); row != nil && row.redrives == d.Redrives {
			parked.take(d.Sequence)
			row.history = remember(row.history, d.Attempts, at, d.Cause)
			db.bury(name, st.Partition, row, d.Reason, d.Cause, d.Attempts, at)
		}
	}
	for _, seq := range st.Removed {
		parked.take(seq)
	}
	for _, h := range st.Held {
		l := latest[h.Sequence]
		movedOn := l != nil && parked.rows[h.Sequence] == nil
		if h.UntilDecided {
			movedOn = l == nil || l.State != deadletter.Open
		}
		if movedOn {
			h.UntilDecided, h.After = false, 0
		}
		parked.hold(h, at)
	}
}

// source returns a copy of the parked row, or one made from the log if it is to come from there, or nil.
func source(parked *parkedSet, log *partitionLog, seq int64, fromLog bool, at time.Time) *parkedRow {
	if row := parked.rows[seq]; row != nil {
		c := *row
		return &c
	}
	if !fromLog {
		return nil
	}
	r := log.find(seq)
	if r == nil {
		return nil // see checkFound
	}
	return &parkedRow{msg: r.msg, undecodable: r.undecodable, size: r.size, key: r.msg.Key, parkedAt: at}
}

func (r *parkedRow) parkedAgain(p relay.Parked, at time.Time) *parkedRow {
	r.key, r.waits, r.reason, r.attempts, r.dueAt = p.Key, p.Waits, p.Reason, max(r.attempts, p.Attempts), time.Time{}
	if !p.Waits {
		r.dueAt = at.Add(p.After)
	}
	attempt := p.Attempts
	if p.Reason != relay.ParkRetry {
		attempt = 0
	}
	r.history = remember(r.history, attempt, at, p.Cause)
	return r
}

// hold holds a key or changes why it is held.
func (p *parkedSet) hold(k relay.HeldKey, at time.Time) {
	h := p.held[k.Key]
	if h == nil {
		h = &heldRow{key: k.Key, since: at}
		p.held[k.Key] = h
	}
	h.seq, h.reason, h.cause, h.attempts = k.Sequence, k.Reason, cut(k.Cause), k.Attempts
	h.undecided, h.next = k.UntilDecided, at.Add(k.After)
	if k.UntilDecided {
		h.next = time.Time{}
	}
}

// release ends the holding of keys behind which nothing waits, and returns which of them are held no longer.
func (p *parkedSet) release(keys []string, at time.Time) []string {
	var released []string
	for _, key := range keys {
		h := p.held[key]
		if h != nil && len(p.waiting[key]) > 0 {
			p.letGo(h, at)
			continue
		}
		delete(p.held, key)
		released = append(released, key)
	}
	return released
}
