package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// HandleTx is Handle for side effects in the outbox's own database: h works in a transaction that commits together with the
// relay's progress, or not at all. So a message's side effect happens exactly once, whatever crashes, without a record of
// processed messages. Messages that h publishes in the transaction are part of it; published with h's ctx, they wake relays once
// it has committed. h must not commit or roll back tx, use it after returning, or ignore the error of a statement in it: the
// database may have rolled back everything.
//
// Fresh messages of a partition run one after another, up to Config.TxBatch of them in a transaction; partitions run in
// parallel, and so do parked messages. If a message fails, its transaction is rolled back, and the messages before it run again
// without it. The failure counts as an attempt only when the message is the first of its transaction. So h may run more often
// than its attempts are counted, and what it does outside of tx may happen more than once.
//
// All handlers of a relay are of one kind, with or without a transaction, and of one Tx. Before switching a relay from Handle
// to HandleTx, stop it in an orderly way: what a process that died had in progress may be delivered twice. Errors: as in
// Handle; an error if the relay's store has no transactions of the type Tx.
func HandleTx[Tx, T any](r *Relay, d postrider.Definition[T], h func(ctx context.Context, tx Tx, m postrider.Typed[T]) error) error {
	return r.addTyped(d, h == nil, withTx[Tx], d.Handler(func(ctx context.Context, m postrider.Typed[T]) error {
		return h(ctx, txOf[Tx](ctx), m)
	}))
}

// HandleTxFunc is HandleTx for all messages of a type, except schema versions that have a handler of their own, as HandleFunc
// is to Handle.
func HandleTxFunc[Tx any](r *Relay, messageType string, h func(ctx context.Context, tx Tx, m *postrider.Message) error) error {
	return r.addAny(messageType, h == nil, withTx[Tx], func(ctx context.Context, m *postrider.Message) error {
		return h(ctx, txOf[Tx](ctx), m)
	})
}

// transactor begins transactions of a type that the relay need not know.
type transactor interface {
	// begin begins a transaction that ends if it waits for a statement for longer than atMost.
	begin(ctx context.Context, atMost time.Duration) (transaction, error)
	// limits returns those of a store.TxLimiter, 0 without one.
	limits() (idle time.Duration, connections int)
}

type transaction interface {
	// within returns the context for handlers, in which the transaction travels through interceptors.
	within(ctx context.Context) context.Context
	rollback(ctx context.Context) error
	commitSettled(ctx context.Context, relay string, s store.Settlement) ([]string, error)
}

// withTx gets the transactions for handlers from a relay's store.
func withTx[Tx any](r *Relay) (transactor, error) {
	store, ok := r.store.(store.TxSettler[Tx])
	if !ok {
		var tx Tx
		return nil, fmt.Errorf("relay %s: its store %T has no transactions of type %T that commit with a settlement; use those "+
			"of the store, or consume through an inbox", r.cfg.Name, r.store, tx)
	}
	return txStore[Tx]{store}, nil
}

type txStore[Tx any] struct{ store store.TxSettler[Tx] }

func (s txStore[Tx]) begin(ctx context.Context, atMost time.Duration) (transaction, error) {
	begin := s.store.Begin
	if l, ok := s.store.(store.TxLimiter[Tx]); ok {
		begin = func(ctx context.Context) (Tx, error) { return l.BeginLimited(ctx, atMost) }
	}
	tx, err := begin(ctx)
	if err != nil {
		return nil, err
	}
	return begunTx[Tx]{s.store, tx}, nil
}

func (s txStore[Tx]) limits() (idle time.Duration, connections int) {
	if l, ok := s.store.(store.TxLimiter[Tx]); ok {
		return l.IdleLimit(), l.Connections()
	}
	return 0, 0
}

// idleLimit is how long a transaction may wait for its handler's next statement; 0 means no limit.
func (r *Relay) idleLimit() time.Duration {
	if r.tx == nil {
		return 0
	}
	idle, _ := r.tx.limits()
	if idle == 0 {
		return 0
	}
	return min(idle, r.cfg.LeaseTTL)
}

// fitTx adapts the relay to the transactions that its store can have open, or says what does not fit.
func (r *Relay) fitTx() error {
	if r.tx == nil {
		return nil
	}
	if idle := r.idleLimit(); idle > 0 && (r.cfg.AttemptTimeout < 0 || r.cfg.AttemptTimeout >= idle) {
		timeout := "none"
		if r.cfg.AttemptTimeout > 0 {
			timeout = r.cfg.AttemptTimeout.String()
		}
		return fmt.Errorf("relay %s: AttemptTimeout is %s, and the database ends a transaction that waits %s for a statement (the store's "+
			"IdleTimeout, at most LeaseTTL): set AttemptTimeout below that, or raise the two", r.cfg.Name, timeout, idle)
	}
	if _, connections := r.tx.limits(); connections > 0 && connections < r.cfg.Concurrency {
		r.cfg.Logger.Info("relay runs fewer transactions at once than Concurrency, because the pool has no more connections for them",
			"relay", r.cfg.Name, "concurrency", r.cfg.Concurrency, "transactions", connections)
		r.cfg.Concurrency = connections
	}
	return nil
}

type begunTx[Tx any] struct {
	store store.TxSettler[Tx]
	tx    Tx
}

type txKey[Tx any] struct{}

func (t begunTx[Tx]) within(ctx context.Context) context.Context {
	return context.WithValue(ctx, txKey[Tx]{}, t.tx)
}

// txOf returns the transaction of a handler's context.
func txOf[Tx any](ctx context.Context) Tx { return ctx.Value(txKey[Tx]{}).(Tx) }

func (t begunTx[Tx]) rollback(ctx context.Context) error { return t.store.Rollback(ctx, t.tx) }

func (t begunTx[Tx]) commitSettled(ctx context.Context, relay string, s store.Settlement) ([]string, error) {
	return t.store.CommitSettled(ctx, t.tx, relay, s)
}
