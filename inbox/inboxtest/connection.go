package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// errCut is the error of a process that cannot reach the database.
var errCut = errors.New("inboxtest: the database cannot be reached")

// errRefused is the error of a database that refuses to commit an effect.
var errRefused = errors.New("inboxtest: the commit is refused")

// connection is how a process reaches the database: it fails on demand, and can be cut permanently.
type connection[Tx any] struct {
	Store[Tx]
	fault func(op string, done bool) error
	// unstorable, unless nil, says which messages the database cannot store.
	unstorable func(m *postrider.Message) bool

	conflicts atomic.Int64

	mu     sync.Mutex
	dead   bool
	open   map[any]Tx    // transactions
	uses   map[any]turn  // locks of transactions and savepoints; a driver's serve one goroutine at a time
	spoilt map[turn]bool // transactions whose commit the database refuses
}

// cut ends the connection: the database rolls back open transactions, as soon as the running statement has ended.
func (l *connection[Tx]) cut() {
	l.mu.Lock()
	l.dead = true
	open := l.open
	l.open = nil
	l.mu.Unlock()
	var all sync.WaitGroup // concurrently: a running statement may wait for a lock of another transaction
	for _, tx := range open {
		all.Go(func() { _ = l.using(tx, func() error { return l.Store.Rollback(context.Background(), tx) }) })
	}
	all.Wait()
}

// using runs f while nobody else uses tx.
func (l *connection[Tx]) using(tx Tx, f func() error) error {
	use := l.use(tx)
	use.Lock()
	defer use.Unlock()
	return f()
}

// turn is a lock whose waiters let the time of a bubble advance.
type turn chan struct{}

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }

func (l *connection[Tx]) use(tx Tx) turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	use := l.uses[any(tx)]
	if use == nil {
		use = make(turn, 1)
		if l.uses == nil {
			l.uses = make(map[any]turn)
		}
		l.uses[any(tx)] = use
	}
	return use
}

// refuse makes the commit of a transaction fail, like a deferred constraint.
func (l *connection[Tx]) refuse(tx Tx) {
	use := l.use(tx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spoilt == nil {
		l.spoilt = make(map[turn]bool)
	}
	l.spoilt[use] = true
}

// refuses says whether the commit of a transaction must fail.
func (l *connection[Tx]) refuses(tx Tx) bool {
	use := l.use(tx)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spoilt[use]
}

func (l *connection[Tx]) passes(op string, done bool) error {
	l.mu.Lock()
	dead := l.dead
	l.mu.Unlock()
	if dead {
		return errCut
	}
	if l.fault != nil {
		return l.fault(op, done)
	}
	return nil
}

// through runs an operation over the connection.
func through[Tx, T any](l *connection[Tx], op string, f func() (T, error)) (T, error) {
	var none T
	if err := l.passes(op, false); err != nil {
		return none, err
	}
	out, err := f()
	if err == nil {
		err = l.passes(op, true)
	}
	if err != nil {
		return none, err
	}
	return out, nil
}

// within runs an operation in a transaction over the connection. fault is called outside the lock, since it may cut the connection.
func within[Tx, T any](l *connection[Tx], op string, tx Tx, f func() (T, error)) (T, error) {
	return through(l, op, func() (T, error) {
		use := l.use(tx)
		use.Lock()
		defer use.Unlock()
		return f()
	})
}

func onlyWithin[Tx any](l *connection[Tx], op string, tx Tx, f func() error) error {
	_, err := within(l, op, tx, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

func only[Tx any](l *connection[Tx], op string, f func() error) error {
	_, err := through(l, op, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

func (l *connection[Tx]) Begin(ctx context.Context) (Tx, error) {
	tx, _, err := opened(l, func() (Tx, struct{}, error) {
		tx, err := l.Store.Begin(ctx)
		return tx, struct{}{}, err
	}, "Begin")
	return tx, err
}

// store returns the connection for a consumer: with a store.BeginBatcher if the store is one.
func (l *connection[Tx]) store() store.Inbox[Tx] {
	if o, ok := l.Store.(store.BeginBatcher[Tx]); ok {
		return openLine[Tx]{l, o}
	}
	return l
}

// openLine begins transactions with their first steps, and fails where either of the operations would.
type openLine[Tx any] struct {
	*connection[Tx]
	opener store.BeginBatcher[Tx]
}

func (l openLine[Tx]) BeginClaim(ctx context.Context, name string, msgs []store.ClaimRequest) (Tx, []store.ClaimResult, error) {
	return opened(l.connection, func() (Tx, []store.ClaimResult, error) { return l.opener.BeginClaim(ctx, name, msgs) }, "Begin", "Claim")
}

// opened begins a transaction by open, which stands for several operations, over the connection.
func opened[Tx, T any](l *connection[Tx], open func() (Tx, T, error), ops ...string) (tx Tx, out T, err error) {
	var none Tx
	for _, op := range ops {
		if err := l.passes(op, false); err != nil {
			return none, out, err
		}
	}
	if tx, out, err = open(); err != nil {
		return none, out, err
	}
	l.mu.Lock()
	dead := l.dead
	if !dead {
		l.open[tx] = tx
	}
	l.mu.Unlock()
	if dead {
		err = errCut
	}
	for i := 0; i < len(ops) && err == nil; i++ {
		err = l.passes(ops[i], true)
	}
	if err != nil { // begun, but the response is lost
		_ = l.Rollback(context.Background(), tx)
		return none, out, err
	}
	return tx, out, nil
}

func (l *connection[Tx]) ended(tx Tx) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, any(tx))
}

func (l *connection[Tx]) Commit(ctx context.Context, tx Tx) error {
	if l.refuses(tx) {
		return errors.Join(errRefused, l.Rollback(ctx, tx))
	}
	return onlyWithin(l, "Commit", tx, func() error { defer l.ended(tx); return l.Store.Commit(ctx, tx) })
}

// CommitSettled is a Commit under a lease. Whatever it returns, the transaction has ended.
func (l *connection[Tx]) CommitSettled(ctx context.Context, tx Tx, name string, s store.Settlement) ([]string, error) {
	if l.refuses(tx) {
		return nil, errors.Join(errRefused, l.Rollback(ctx, tx))
	}
	released, err := within(l, "Commit", tx, func() ([]string, error) {
		return l.Store.(store.TxSettler[Tx]).CommitSettled(ctx, tx, name, s)
	})
	if err != nil {
		return nil, errors.Join(err, l.Rollback(context.WithoutCancel(ctx), tx))
	}
	l.ended(tx)
	return released, nil
}

func (l *connection[Tx]) Position(ctx context.Context, tx Tx, name, partition string) (*store.LogPosition, error) {
	return within(l, "Position", tx, func() (*store.LogPosition, error) { return l.Store.Position(ctx, tx, name, partition) })
}

func (l *connection[Tx]) MovePosition(ctx context.Context, tx Tx, name string, p store.LogPosition) error {
	return onlyWithin(l, "MovePosition", tx, func() error { return l.Store.MovePosition(ctx, tx, name, p) })
}

func (l *connection[Tx]) LogPositions(ctx context.Context, name string) ([]store.LogPosition, error) {
	return through(l, "LogPositions", func() ([]store.LogPosition, error) { return l.Store.LogPositions(ctx, name) })
}

// Conflicted counts the conflicts.
func (l *connection[Tx]) Conflicted(err error) bool {
	conflicted := l.Store.Conflicted(err)
	if conflicted {
		l.conflicts.Add(1)
	}
	return conflicted
}

// Rollback always happens: a database rolls back uncommitted transactions.
func (l *connection[Tx]) Rollback(ctx context.Context, tx Tx) error {
	defer l.ended(tx)
	return l.using(tx, func() error { return l.Store.Rollback(ctx, tx) })
}

// Savepoint can also fail after it took effect, like a savepoint that cannot be released.
func (l *connection[Tx]) Savepoint(ctx context.Context, tx Tx, f func(context.Context, Tx) error) error {
	if err := l.passes("Savepoint", false); err != nil {
		return err
	}
	use := l.use(tx)
	use.Lock()
	defer use.Unlock()
	return l.Store.Savepoint(ctx, tx, func(ctx context.Context, inner Tx) error {
		l.mu.Lock()
		l.uses[any(inner)] = use
		l.mu.Unlock()
		use.Unlock() // f locks it itself
		defer use.Lock()
		if err := f(ctx, inner); err != nil {
			return err
		}
		return l.passes("Savepoint", true)
	})
}

func (l *connection[Tx]) Claim(ctx context.Context, tx Tx, name string, msgs []store.ClaimRequest) ([]store.ClaimResult, error) {
	return within(l, "Claim", tx, func() ([]store.ClaimResult, error) { return l.Store.Claim(ctx, tx, name, msgs) })
}

func (l *connection[Tx]) Version(ctx context.Context, tx Tx, name, key string) (int64, error) {
	return within(l, "Version", tx, func() (int64, error) { return l.Store.Version(ctx, tx, name, key) })
}

func (l *connection[Tx]) SetVersion(ctx context.Context, tx Tx, name, key string, version int64) error {
	return onlyWithin(l, "SetVersion", tx, func() error { return l.Store.SetVersion(ctx, tx, name, key, version) })
}

func (l *connection[Tx]) Park(ctx context.Context, tx Tx, name string, failed []store.ParkRequest) error {
	for _, p := range failed {
		if l.cannotStore(p.Message) {
			return fmt.Errorf("park: %w", store.ErrUnstorable)
		}
	}
	return onlyWithin(l, "Park", tx, func() error { return l.Store.Park(ctx, tx, name, failed) })
}

func (l *connection[Tx]) cannotStore(m *postrider.Message) bool {
	return l.unstorable != nil && l.unstorable(m)
}

func (l *connection[Tx]) Take(ctx context.Context, tx Tx, name string, m *postrider.Message) (store.TakeResult, error) {
	return within(l, "Take", tx, func() (store.TakeResult, error) { return l.Store.Take(ctx, tx, name, m) })
}

func (l *connection[Tx]) Heartbeat(ctx context.Context, name string, o store.Owner, ttl time.Duration) (store.View, error) {
	return through(l, "Heartbeat", func() (store.View, error) { return l.Store.Heartbeat(ctx, name, o, ttl) })
}

func (l *connection[Tx]) Acquire(ctx context.Context, name string, o store.Owner, req store.AcquireRequest) ([]store.Lease, error) {
	return through(l, "Acquire", func() ([]store.Lease, error) { return l.Store.Acquire(ctx, name, o, req) })
}

func (l *connection[Tx]) Leave(ctx context.Context, name string, o store.Owner) error {
	return only(l, "Leave", func() error { return l.Store.Leave(ctx, name, o) })
}

func (l *connection[Tx]) Release(ctx context.Context, name string, leases []store.LeaseRef) error {
	return only(l, "Release", func() error { return l.Store.Release(ctx, name, leases) })
}

func (l *connection[Tx]) Due(ctx context.Context, name string, req store.DueRequest) (store.DueResult, error) {
	return through(l, "Due", func() (store.DueResult, error) { return l.Store.Due(ctx, name, req) })
}

func (l *connection[Tx]) Settle(ctx context.Context, name string, s []store.Settlement) (store.Settled, error) {
	return through(l, "Settle", func() (store.Settled, error) { return l.Store.Settle(ctx, name, s) })
}
