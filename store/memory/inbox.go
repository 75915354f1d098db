package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// inboxState is what the database stores about one consumer's messages, except parked ones and dead letters, or about the effects
// of one guard.
type inboxState struct {
	effects   map[string]*effectRow // by ID
	claims    map[string]time.Time
	versions  map[string]int64       // by key
	positions map[string]positionRow // by partition of a log
}

func (db *database) inbox(consumer string) *inboxState {
	in := db.inboxes[consumer]
	if in == nil {
		in = &inboxState{
			effects: make(map[string]*effectRow), claims: make(map[string]time.Time), versions: make(map[string]int64),
			positions: make(map[string]positionRow),
		}
		db.inboxes[consumer] = in
	}
	return in
}

// inTx runs an operation in a transaction. f must acquire all its locks before it changes anything.
func inTx[T any](ctx context.Context, s *Store, op string, tx *Tx, f func(*database) (T, error)) (T, error) {
	return do(ctx, s, op, func(db *database) (T, error) {
		if err := tx.usable(db); err != nil {
			var none T
			return none, err
		}
		return f(db)
	})
}

// Savepoint implements store.Transactor.
func (s *Store) Savepoint(ctx context.Context, tx *Tx, f func(context.Context, *Tx) error) error {
	start, err := inTx(ctx, s, "Savepoint", tx, func(*database) (savepoint, error) {
		return savepoint{rows: len(tx.rows), writes: len(tx.writes)}, nil
	})
	if err != nil {
		return err
	}
	err = f(ctx, tx)
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	if ended := tx.usable(tx.db); ended != nil {
		return errors.Join(err, store.ErrUndone, ended)
	}
	if err != nil {
		tx.undo(start)
	}
	return err
}

// Claim implements store.Ledger.
func (s *Store) Claim(ctx context.Context, tx *Tx, consumer string, msgs []store.ClaimRequest) ([]store.ClaimResult, error) {
	ids := make([]string, len(msgs))
	for i, c := range msgs {
		ids[i] = c.ID
	}
	slices.Sort(ids)
	return inTx(ctx, s, "Claim", tx, func(db *database) ([]store.ClaimResult, error) {
		for _, id := range ids { // in one order, so that two calls cannot wait for each other
			if err := tx.acquire(lock{claimed, consumer, id}); err != nil {
				return nil, err
			}
		}
		out := make([]store.ClaimResult, len(msgs))
		for i, c := range msgs {
			out[i].Held = tx.heldFor(consumer, c.Key)
			l := lock{claimed, consumer, c.ID}
			_, before := db.inbox(consumer).claims[c.ID]
			if _, own := tx.written(l); before || own {
				continue
			}
			out[i].Fresh = true
			tx.write(l, nil, func(db *database, at time.Time) { db.inbox(consumer).claims[c.ID] = at })
		}
		return out, nil
	})
}

// Version implements store.Ledger.
func (s *Store) Version(ctx context.Context, tx *Tx, consumer, key string) (int64, error) {
	return inTx(ctx, s, "Version", tx, func(db *database) (int64, error) {
		l := lock{version, consumer, key}
		if err := tx.acquire(l); err != nil {
			return 0, err
		}
		if v, own := tx.written(l); own {
			return v.(int64), nil
		}
		return db.inbox(consumer).versions[key], nil
	})
}

// SetVersion implements store.Ledger.
func (s *Store) SetVersion(ctx context.Context, tx *Tx, consumer, key string, v int64) error {
	_, err := inTx(ctx, s, "SetVersion", tx, func(*database) (struct{}, error) {
		l := lock{version, consumer, key}
		if err := tx.acquire(l); err != nil {
			return struct{}{}, err
		}
		tx.write(l, v, func(db *database, _ time.Time) { db.inbox(consumer).versions[key] = v })
		return struct{}{}, nil
	})
	return err
}

// RemoveClaims implements store.Ledger.
func (s *Store) RemoveClaims(ctx context.Context, consumer string, age time.Duration, limit int) (int, error) {
	return do(ctx, s, "RemoveClaims", func(db *database) (int, error) {
		claims, before, n := db.inbox(consumer).claims, now().Add(-age), 0
		for id, at := range claims {
			if n < limit && at.Before(before) {
				delete(claims, id)
				n++
			}
		}
		return n, nil
	})
}

// Enroll implements store.Parker.
func (s *Store) Enroll(ctx context.Context, consumer string) error {
	_, err := do(ctx, s, "Enroll", func(db *database) (struct{}, error) {
		if err := db.begin(consumer, store.KindConsumer, false); err != nil {
			return struct{}{}, fmt.Errorf("enroll consumer %q: %w", consumer, err)
		}
		return struct{}{}, nil
	})
	return err
}

// heldFor reports whether a key is held, including by what this transaction itself has parked or dead-lettered.
func (tx *Tx) heldFor(consumer, key string) bool {
	if key == "" {
		return false
	}
	if _, own := tx.written(lock{keyHeld, consumer, key}); own {
		return true
	}
	_, _, h, _ := tx.db.held(consumer, key)
	return h != nil
}

// Park implements store.Parker.
func (s *Store) Park(ctx context.Context, tx *Tx, consumer string, list []store.ParkRequest) error {
	var keys []string
	for i := range list {
		if list[i].HoldsKey() {
			keys = append(keys, list[i].Message.Key)
		}
	}
	slices.Sort(keys) // in one order, so that two calls cannot wait for each other
	_, err := inTx(ctx, s, "Park", tx, func(*database) (struct{}, error) {
		called := now()
		for _, key := range keys {
			if err := tx.acquireKey(consumer, key); err != nil {
				return struct{}{}, err
			}
		}
		holds := make(map[string]bool)
		for i := range list {
			p := &list[i]
			if key := p.Message.Key; p.HoldsKey() {
				if p.Dead != nil && (holds[key] || tx.heldFor(consumer, key)) {
					return struct{}{}, fmt.Errorf("dead-letter message %s: %w", p.Message.ID, store.ErrKeyHeld)
				}
				holds[key] = true
			}
		}
		for _, p := range list {
			m, l := clone(p.Message), lock{}
			if p.Dead == nil || p.HoldsKey() {
				l = lock{keyHeld, consumer, m.Key}
			}
			tx.write(l, nil, func(db *database, _ time.Time) { db.park(consumer, m, &p, called) })
		}
		return struct{}{}, nil
	})
	return err
}

// park parks or dead-letters a message of a consumer.
func (db *database) park(consumer string, m *postrider.Message, p *store.ParkRequest, at time.Time) {
	set, row := db.newParked(consumer, m, p.Attempts, at)
	if d := p.Dead; d != nil {
		dead := db.deadLetter(consumer, postrider.PartitionOf(m.Key, m.ID, len(db.log)), row, d.Reason, p.Cause, row.attempts, at)
		if d.Discarded {
			dead.close(store.DeadDiscarded, consumer, d.Reason, at)
		}
	} else {
		row.reason, row.waits = p.Reason, m.Key != ""
		row.history = remember(row.history, 0, at, p.Cause)
		if !row.waits {
			row.dueAt = at.Add(p.After)
		}
		set.put(row)
	}
	if !p.HoldsKey() || set.held[m.Key] != nil {
		return
	}
	h := store.HeldKey{Key: m.Key, Sequence: m.Sequence, Reason: p.Reason, Cause: p.Why(), Attempts: row.attempts, After: p.After}
	if p.Dead != nil {
		h.Reason, h.UntilDecided = store.ParkDead, true
	}
	set.hold(h, at)
}

func (tx *Tx) acquireKey(consumer, key string) error {
	if key == "" {
		return nil
	}
	return tx.acquire(lock{keyHeld, consumer, key})
}

// newParked creates the row of a message that is parked or dead-lettered.
func (db *database) newParked(consumer string, m *postrider.Message, attempts []store.FailedAttempt, at time.Time) (*parkedSet, *parkedRow) {
	db.lastParked++
	m.Sequence, m.Attempt, m.CreatedAt, m.DeliverAfter = db.lastParked, 0, at, 0
	m.Time, m.DeliverAt = stamp(m.Time), stamp(m.DeliverAt)
	row := &parkedRow{msg: m, size: m.Size(), key: m.Key, parkedAt: at, attempts: len(attempts)}
	for i, a := range attempts {
		row.history = remember(row.history, i+1, at.Add(-a.Ago), a.Cause)
	}
	return db.relay(consumer).parked[postrider.PartitionOf(m.Key, m.ID, len(db.log))], row
}

// Take implements store.Parker.
func (s *Store) Take(ctx context.Context, tx *Tx, consumer string, m *postrider.Message) (store.TakeResult, error) {
	return inTx(ctx, s, "Take", tx, func(db *database) (store.TakeResult, error) {
		partition := postrider.PartitionOf(m.Key, m.ID, len(db.log))
		l := parkedLock(consumer, m.Sequence)
		if err := tx.acquire(l); err != nil {
			return store.TakeResult{}, err
		}
		row := db.relay(consumer).parked[partition].rows[m.Sequence]
		if _, own := tx.written(l); own || row == nil || row.msg.ID != m.ID {
			return store.TakeResult{}, nil
		}
		tx.write(l, nil, func(db *database, _ time.Time) {
			db.relay(consumer).parked[postrider.PartitionOf(m.Key, m.ID, len(db.log))].take(m.Sequence)
		})
		return store.TakeResult{Found: true, ParkedFor: now().Sub(row.parkedAt)}, nil
	})
}
