package sqlite

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"
)

// turnPatience is how long a writer waits for its turn before it tries SQLite anyway.
const turnPatience = time.Second

// turn lets the writers of one Store take turns. SQLite has no queue for its lock: writers retry with growing pauses, and an
// unlucky one can lose many times in a row. Of 4,000 commits by 8 writers without pause, on a loaded machine and without syncing,
// the slowest took 260 to 610 ms, and with turns 5 to 170 ms.
//
// Turns are only a courtesy. The lock is SQLite's, other processes know nothing of turns, and a transaction that does not end
// through its Store keeps its turn; a writer that then gets the lock without one passes on the next turn.
type turn struct {
	next   chan struct{} // of capacity 1; holds a value while nobody has the turn
	holder atomic.Pointer[sql.Tx]
}

func newTurn() *turn {
	t := &turn{next: make(chan struct{}, 1)}
	t.pass()
	return t
}

// wait waits for a turn, first come, first served, but at most for turnPatience.
func (t *turn) wait(ctx context.Context) {
	select {
	case <-t.next:
		return
	default:
	}
	timer := time.NewTimer(turnPatience)
	defer timer.Stop()
	select {
	case <-t.next:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// pass passes on the turn.
func (t *turn) pass() {
	select {
	case t.next <- struct{}{}:
	default:
	}
}

// begun records that a user's transaction has the turn; ended, that it is over. Only the first end counts.
func (t *turn) begun(tx *sql.Tx) { t.holder.Store(tx) }

func (t *turn) ended(tx *sql.Tx) {
	if t.holder.CompareAndSwap(tx, nil) {
		t.pass()
	}
}
