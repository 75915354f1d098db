package memory

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/postrider/postrider/store"
)

// What a transaction does for a consumer is recorded in the transaction and applied when it commits. Until then everything
// concerned is locked: another transaction that needs it waits, as for a row lock in PostgreSQL.

// lock names something that only one transaction at a time can hold.
type lock struct{ kind, consumer, name string }

// Kinds of locks and writes.
const (
	claimed  = "claim"
	version  = "version"
	position = "position"
	keyHeld  = "held"
	parked   = "parked"

	sideEffect = "side effect" // of a test
)

// write is a change that is applied at the commit.
type write struct {
	lock
	value any
	apply func(db *database, at time.Time)
}

// acquire takes a lock until the end of the transaction.
func (tx *Tx) acquire(l lock) error {
	switch by := tx.db.locks[l]; by {
	case tx:
	case nil:
		tx.db.locks[l] = tx
		tx.locks = append(tx.locks, l)
	default:
		return &blocked{tx: tx, by: by}
	}
	return nil
}

// errDeadlock ends one of two operations that wait for each other's transactions, as PostgreSQL does.
var errDeadlock = errors.New("deadlock: two transactions wait for each other; run this one again")

// Conflicted implements store.Transactor.
func (s *Store) Conflicted(err error) bool { return errors.Is(err, errDeadlock) }

// blocked says why an operation has to wait: another transaction holds a lock that it needs. The operation has changed nothing
// except that it holds the locks acquired so far. tx is nil for an operation outside of transactions.
type blocked struct{ tx, by *Tx }

func (*blocked) Error() string { return "blocked by another transaction" }

// begin records the wait, unless the other transaction waits for this one.
func (b *blocked) begin() error {
	if b.tx == nil {
		return nil
	}
	for t := b.by; t != nil; t = t.waits {
		if t == b.tx {
			return errDeadlock
		}
	}
	b.tx.waits = b.by
	return nil
}

// wait waits until the other transaction has ended.
func (b *blocked) wait(ctx context.Context, db *database) error {
	var err error
	select {
	case <-b.by.done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if b.tx != nil {
		db.mu.Lock()
		b.tx.waits = nil
		db.mu.Unlock()
	}
	return err
}

// written returns what this transaction itself last wrote under a lock.
func (tx *Tx) written(l lock) (value any, ok bool) {
	for _, w := range slices.Backward(tx.writes) {
		if w.lock == l {
			return w.value, true
		}
	}
	return nil, false
}

func (tx *Tx) write(l lock, value any, apply func(db *database, at time.Time)) {
	tx.writes = append(tx.writes, write{l, value, apply})
}

func parkedLock(consumer string, seq int64) lock {
	return lock{parked, consumer, strconv.FormatInt(seq, 10)}
}

// untaken returns an error if an open transaction has taken one of these parked messages.
func (db *database) untaken(name string, sequences ...int64) error {
	if len(db.locks) == 0 {
		return nil
	}
	for _, seq := range sequences {
		if by := db.locks[parkedLock(name, seq)]; by != nil {
			return &blocked{by: by}
		}
	}
	return nil
}

// untakenSettlement is untaken for the messages that a settlement changes.
func (db *database) untakenSettlement(name string, st store.Settlement) error {
	sequences := slices.Clone(st.Removed)
	for _, p := range st.Parked {
		sequences = append(sequences, p.Sequence)
	}
	for _, d := range st.Dead {
		sequences = append(sequences, d.Sequence)
	}
	return db.untaken(name, sequences...)
}

// untakenKey is untaken for all messages that are queued for a key.
func (db *database) untakenKey(name, key string) error {
	_, set, _, err := db.held(name, key)
	if err != nil {
		return err
	}
	for _, row := range set.waiting[key] {
		if err := db.untaken(name, row.msg.Sequence); err != nil {
			return err
		}
	}
	return nil
}
