package memory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/store"
)

// Settle implements store.Log. Delivered messages need no record here: the cursor covers them.
func (s *Store) Settle(ctx context.Context, name string, settlements []store.Settlement) (store.Settled, error) {
	return do(ctx, s, "Settle", func(db *database) (store.Settled, error) {
		for _, st := range settlements { // first, so that nothing has changed if one has to wait
			if err := db.untakenSettlement(name, st); err != nil {
				return store.Settled{}, err
			}
		}
		var out store.Settled
		for _, st := range settlements {
			released, err := s.settleUndoably(name, st)
			switch {
			case errors.Is(err, store.ErrLeaseLost):
				out.Lost = append(out.Lost, st.Partition)
			case err != nil:
				if out.Failed == nil {
					out.Failed = make(map[int]error)
				}
				out.Failed[st.Partition] = err
			default:
				out.Released = append(out.Released, released...)
			}
		}
		return out, nil
	})
}

// settleOne applies a settlement if it is the next one under a valid lease, and returns the keys that are no longer held.
func (db *database) settleOne(name string, st store.Settlement, at time.Time) (released []string, err error) {
	if err := db.check(st); err != nil {
		return nil, err
	}
	c := db.lease(name, store.LeaseRef{Partition: st.Partition, Token: st.Token})
	content := st.Digest()
	switch {
	case c == nil:
		return nil, store.ErrLeaseLost
	case st.Number == c.number && content == c.content:
		for _, key := range st.Release {
			if db.relays[name].parked[st.Partition].held[key] == nil {
				released = append(released, key)
			}
		}
		return released, nil
	case st.Number != c.number+1:
		return nil, store.ErrLeaseLost
	}
	if err := db.checkFound(db.relay(name), st); err != nil {
		return nil, err
	}
	c.number, c.content = st.Number, content
	return db.settleAll(name, c, st, at), nil
}

// settleAll applies a settlement and returns the keys that are no longer held.
func (db *database) settleAll(name string, c *cursorState, st store.Settlement, at time.Time) (released []string) {
	db.settle(name, st, at)
	if st.Moved {
		c.cursor = st.Cursor
	}
	c.settled = at
	c.delivered += st.DeliveredCount
	c.failed += st.FailedCount
	db.relays[name].countUnrouted(st.Unrouted, at)
	return db.relays[name].parked[st.Partition].release(st.Release, at)
}

// CommitSettled implements store.TxSettler.
func (s *Store) CommitSettled(ctx context.Context, tx *Tx, name string, st store.Settlement) ([]string, error) {
	released, err := do(ctx, s, "CommitSettled", func(db *database) ([]string, error) {
		if err := tx.usable(db); err != nil {
			return nil, err
		}
		if err := db.untakenSettlement(name, st); err != nil {
			return nil, err
		}
		c := db.lease(name, store.LeaseRef{Partition: st.Partition, Token: st.Token})
		if c == nil || st.Number > 0 && st.Number != c.number+1 {
			return nil, store.ErrLeaseLost
		}
		r, at := db.relay(name), now()
		for _, seq := range st.Removed {
			if r.parked[st.Partition].rows[seq] == nil {
				return nil, store.ErrNotParked
			}
		}
		if st.Number == 0 {
			tx.commit(at)
			for _, seq := range st.Removed {
				r.parked[st.Partition].take(seq)
			}
			c.delivered += st.DeliveredCount
			return nil, nil
		}
		released, err := db.settleOne(name, st, at)
		if err != nil {
			return nil, err
		}
		tx.commit(at)
		return released, nil
	})
	if err != nil {
		_ = s.Rollback(ctx, tx) // no effect if it was committed
	}
	return released, err
}

// check refuses a settlement with an unknown partition or an unreadable cursor.
func (db *database) check(st store.Settlement) error {
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

// checkFound refuses a settlement that would lose messages: those to copy from the log that are not there.
func (db *database) checkFound(r *relayState, st store.Settlement) error {
	for _, p := range st.Parked {
		if p.FromLog && db.log[st.Partition].find(p.Sequence) == nil {
			return fmt.Errorf("settle: park message %d: it is not in the log of partition %d", p.Sequence, st.Partition)
		}
	}
	for _, d := range st.Dead {
		if d.FromLog && db.log[st.Partition].find(d.Sequence) == nil && r.parked[st.Partition].rows[d.Sequence] == nil {
			return fmt.Errorf("settle: dead-letter message %d: it is not in the log of partition %d", d.Sequence, st.Partition)
		}
	}
	return nil
}

// settle applies the changes of messages and held keys in a settlement.
func (db *database) settle(name string, st store.Settlement, at time.Time) {
	parked, log, latest := db.relays[name].parked[st.Partition], db.log[st.Partition], db.relays[name].latest
	for _, p := range st.Parked {
		if row := source(parked, log, p.Sequence, p.FromLog, at); row != nil {
			parked.put(row.parkedAgain(p, at))
		}
	}
	for _, d := range st.Dead {
		if row := source(parked, log, d.Sequence, d.FromLog, at); row != nil {
			parked.take(d.Sequence)
			row.history = remember(row.history, d.Attempts, at, d.Cause)
			l := db.deadLetter(name, st.Partition, row, d.Reason, d.Cause, d.Attempts, at)
			if d.Discarded {
				l.close(store.DeadDiscarded, name, d.Reason, at)
			}
		}
	}
	for _, seq := range st.Removed {
		parked.take(seq)
	}
	for _, h := range st.Held {
		if l := latest[h.Sequence]; h.UntilDecided && (l == nil || l.State != store.DeadOpen) {
			h.UntilDecided, h.After = false, 0
		}
		parked.hold(h, at)
	}
}

// source returns a copy of the parked row, or one made from the log if fromLog is set, or nil.
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

func (r *parkedRow) parkedAgain(p store.ParkOutcome, at time.Time) *parkedRow {
	r.key, r.waits, r.reason, r.attempts, r.dueAt = p.Key, p.Waits, p.Reason, p.Attempts, time.Time{}
	if !p.Waits {
		r.dueAt = at.Add(p.After)
	}
	attempt := p.Attempts
	if p.Reason != store.ParkRetry {
		attempt = 0
	}
	r.history = remember(r.history, attempt, at, p.Cause)
	return r
}

// hold holds a key or changes why it is held.
func (p *parkedSet) hold(k store.HeldKey, at time.Time) {
	h := &heldRow{
		key: k.Key, seq: k.Sequence, reason: k.Reason, cause: cut(k.Cause), attempts: k.Attempts, since: at, undecided: k.UntilDecided,
	}
	if old := p.held[k.Key]; old != nil {
		h.since = old.since
	}
	if !h.undecided {
		h.next = at.Add(k.After)
	}
	p.putHeld(h)
}

// release releases keys that have no queued messages, and returns those that are no longer held.
func (p *parkedSet) release(keys []string, at time.Time) []string {
	var released []string
	for _, key := range keys {
		h := p.held[key]
		if h != nil && len(p.waiting[key]) > 0 {
			p.resumeKey(h, at)
			continue
		}
		p.takeHeld(key)
		released = append(released, key)
	}
	return released
}
