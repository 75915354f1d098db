package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

// Tx is a transaction. Like a database transaction, it is meant for one goroutine at a time, but it is safe for several.
type Tx struct {
	db         *database
	xid        uint64 // 0 until something is written
	ended      bool
	done       chan struct{} // closed when the transaction has ended
	waits      *Tx           // the transaction whose end it waits for
	rows       []*row
	writes     []write
	locks      []lock
	savepoints []savepoint
}

// savepoint records how much a transaction had written.
type savepoint struct {
	name         string
	rows, writes int
}

// Begin implements store.Outbox.
func (s *Store) Begin(ctx context.Context) (*Tx, error) {
	return do(ctx, s, "Begin", func(db *database) (*Tx, error) {
		return &Tx{db: db, done: make(chan struct{})}, nil
	})
}

// Commit implements store.Outbox: what tx wrote becomes visible, all at once. Errors: store.ErrNoTransaction if tx has ended.
func (s *Store) Commit(ctx context.Context, tx *Tx) error {
	_, err := do(ctx, s, "Commit", func(db *database) (struct{}, error) {
		if err := tx.usable(db); err != nil {
			return struct{}{}, err
		}
		tx.commit(now())
		return struct{}{}, nil
	})
	return err
}

func (tx *Tx) commit(at time.Time) {
	for _, w := range tx.writes {
		w.apply(tx.db, at)
	}
	tx.end()
}

// Rollback implements store.Outbox: it discards what tx wrote, even if ctx has ended. It does nothing if tx has ended.
func (s *Store) Rollback(ctx context.Context, tx *Tx) error {
	_, err := do(context.WithoutCancel(ctx), s, "Rollback", func(db *database) (struct{}, error) {
		if tx != nil && tx.usable(db) == nil {
			tx.undo(savepoint{})
			tx.end()
		}
		return struct{}{}, nil
	})
	return err
}

func (tx *Tx) end() {
	delete(tx.db.active, tx.xid)
	for _, l := range tx.locks {
		delete(tx.db.locks, l)
	}
	tx.ended = true
	close(tx.done)
	tx.rows, tx.writes, tx.locks, tx.savepoints = nil, nil, nil, nil
}

// undo discards what was written since a savepoint. Locks acquired since then are kept until the transaction ends.
func (tx *Tx) undo(to savepoint) {
	tx.db.remove(tx.rows[to.rows:])
	tx.rows = tx.rows[:to.rows:to.rows]
	tx.writes = tx.writes[:to.writes:to.writes]
}

func (tx *Tx) usable(db *database) error {
	switch {
	case tx == nil:
		return store.ErrNoTransaction
	case tx.db != db:
		return fmt.Errorf("%w: this one belongs to another outbox", store.ErrNoTransaction)
	case tx.ended:
		return fmt.Errorf("%w: this one was committed or rolled back", store.ErrNoTransaction)
	}
	return nil
}

// Savepoint marks a point in the transaction to roll back to. Errors: store.ErrNoTransaction.
func (tx *Tx) Savepoint(name string) error {
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	if err := tx.usable(tx.db); err != nil {
		return err
	}
	tx.savepoints = append(tx.savepoints, savepoint{name, len(tx.rows), len(tx.writes)})
	return nil
}

// RollbackTo undoes what was written since the latest savepoint of that name, which stays; later savepoints are removed. Errors:
// store.ErrNoTransaction.
func (tx *Tx) RollbackTo(name string) error {
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	if err := tx.usable(tx.db); err != nil {
		return err
	}
	for i, sp := range slices.Backward(tx.savepoints) {
		if sp.name == name {
			tx.undo(sp)
			tx.savepoints = tx.savepoints[:i+1]
			return nil
		}
	}
	return fmt.Errorf("no savepoint %q in this transaction", name)
}

// OnCommit calls change when the transaction commits, as a part of it: for tests whose side effects are in memory and must be undone
// with the transaction. change must not call the store. Errors: store.ErrNoTransaction.
func (tx *Tx) OnCommit(change func()) error {
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	if err := tx.usable(tx.db); err != nil {
		return err
	}
	tx.write(lock{kind: sideEffect}, nil, func(*database, time.Time) { change() })
	return nil
}

// Insert implements store.Outbox.
func (s *Store) Insert(ctx context.Context, tx *Tx, msgs []*postrider.Message) error {
	_, err := do(ctx, s, "Insert", func(db *database) (struct{}, error) {
		if err := tx.usable(db); err != nil {
			return struct{}{}, err
		}
		for _, m := range msgs {
			tx.insert(m, nil)
		}
		return struct{}{}, nil
	})
	return err
}

// InsertUndecodable writes a row that cannot be read as a message, for tests: m's key, ID, type and topic can be read; reading
// the rest fails with cause.
func (s *Store) InsertUndecodable(ctx context.Context, tx *Tx, m *postrider.Message, cause error) error {
	if cause == nil {
		return errors.New("an undecodable row needs a cause")
	}
	_, err := do(ctx, s, "InsertUndecodable", func(db *database) (struct{}, error) {
		if err := tx.usable(db); err != nil {
			return struct{}{}, err
		}
		tx.insert(&postrider.Message{ID: m.ID, Key: m.Key, Type: m.Type, Topic: m.Topic}, cause)
		return struct{}{}, nil
	})
	return err
}

func (tx *Tx) insert(m *postrider.Message, undecodable error) {
	db := tx.db
	if tx.xid == 0 {
		tx.xid = db.nextXID
		db.nextXID++
		db.active[tx.xid] = true
	}
	db.lastSeq++
	at := now()
	c := clone(m)
	c.Sequence, c.Attempt, c.CreatedAt = db.lastSeq, 0, at
	c.Time, c.DeliverAt = stamp(c.Time), stamp(c.DeliverAt)
	r := &row{
		seq: c.Sequence, xid: tx.xid, partition: postrider.PartitionOf(c.Key, c.ID, len(db.log)),
		size: c.Size(), msg: c, availableAt: c.DeliverAt, undecodable: undecodable,
	}
	if c.DeliverAfter > 0 {
		r.availableAt = at.Add(c.DeliverAfter)
	}
	// Only the time is stored, not how the publisher gave it.
	c.DeliverAt, c.DeliverAfter = r.availableAt, 0
	if err := stored.FixTimes(c); r.undecodable == nil {
		r.undecodable = err
	}
	tx.rows = append(tx.rows, r)
	db.log[r.partition].add(r)
	db.bytes += int64(r.size)
}

// Written implements store.Outbox.
func (s *Store) Written(ctx context.Context, tx *Tx, ids []string) ([]string, error) {
	return do(ctx, s, "Written", func(db *database) ([]string, error) {
		if err := tx.usable(db); err != nil {
			return nil, err
		}
		written := make(map[string]bool, len(tx.rows))
		for _, r := range tx.rows {
			written[r.msg.ID] = true
		}
		var out []string
		for _, id := range ids {
			if written[id] {
				out = append(out, id)
			}
		}
		return out, nil
	})
}

// Published implements store.Outbox.
func (s *Store) Published(ctx context.Context, tx *Tx) ([]*postrider.Message, error) {
	return do(ctx, s, "Published", func(db *database) ([]*postrider.Message, error) {
		if err := tx.usable(db); err != nil {
			return nil, err
		}
		var out []*postrider.Message
		for _, r := range tx.rows {
			if r.undecodable != nil {
				return nil, fmt.Errorf("message %s: %w", r.msg.ID, r.undecodable)
			}
			out = append(out, clone(r.msg))
		}
		return out, nil
	})
}
