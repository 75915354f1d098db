package sqlite

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"
)

// turnPatience is how long a writer waits for its turn before it asks SQLite all the same.
const turnPatience = time.Second

// turn lets the writers of one Store take turns. SQLite has no queue for its lock: who wants it asks again and again, with
// growing pauses, and in bad luck is passed over again and again. Of 4,000 commits by 8 writers without pause, on a loaded
// machine and without syncing, the slowest took 260 to 610 ms, and with turns 5 to 170 ms.
//
// A turn is a courtesy. The lock is SQLite's, other processes know nothing of turns, and a transaction that is not ended
// through its Store keeps its turn; whoever then gets the lock without one hands on the next.
type turn struct {
	next   chan struct{} // of capacity 1; holds a value while nobody has the turn
	holder atomic.Pointer[sql.Tx]
}

func newTurn() *turn {
	t := &turn{next: make(chan struct{}, 1)}
	t.pass()
	return t
}

// wait waits for a turn, in the order of coming, but not for ever.
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

// pass hands on the turn.
func (t *turn) pass() {
	select {
	case t.next <- struct{}{}:
	default:
	}
}

// begun notes that the turn is that of a transaction of the user, ended that it is over. Only the first end counts.
func (t *turn) begun(tx *sql.Tx) { t.holder.Store(tx) }

func (t *turn) ended(tx *sql.Tx) {
	if t.holder.CompareAndSwap(tx, nil) {
		t.pass()
	}
}
