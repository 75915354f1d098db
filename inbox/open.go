package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/store"
)

// batcherOf returns the store as a store.BeginBatcher, or a fallback that runs the steps one by one.
func batcherOf[Tx any](s store.Inbox[Tx]) store.BeginBatcher[Tx] {
	if o, ok := s.(store.BeginBatcher[Tx]); ok {
		return o
	}
	return stepwise[Tx]{s}
}

// beginLimited begins a transaction for a handler, with a limit if the store has one.
func beginLimited[Tx any](ctx context.Context, s store.Inbox[Tx]) (Tx, error) {
	if l, ok := s.(store.TxLimiter[Tx]); ok {
		return l.BeginLimited(ctx, 0)
	}
	return s.Begin(ctx)
}

// fitTx adapts a configuration to the store's transaction limits, or returns an error that says what does not fit.
func fitTx[Tx any](cfg *ConsumerConfig, s store.Inbox[Tx]) error {
	l, ok := s.(store.TxLimiter[Tx])
	if !ok {
		return nil
	}
	if idle := l.IdleLimit(); idle > 0 {
		if cfg.AttemptTimeout >= idle {
			return fmt.Errorf("inbox: consumer %s: AttemptTimeout is %s, and the database ends a transaction that waits %s for a statement "+
				"(the store's IdleTimeout): set AttemptTimeout below that, or raise IdleTimeout", cfg.Name, cfg.AttemptTimeout, idle)
		}
		cfg.AttemptTimeout = cmp.Or(cfg.AttemptTimeout, idle*2/3)
	}
	if n := l.Connections(); n > 0 && n < cfg.Concurrency {
		cfg.Logger.Info("consumer runs fewer transactions at once than Concurrency, because the pool has no more connections for them",
			"consumer", cfg.Name, "concurrency", cfg.Concurrency, "transactions", n)
		cfg.Concurrency = n
	}
	return nil
}

// stepwise begins transactions on a store that is not a store.BeginBatcher.
type stepwise[Tx any] struct{ store store.Inbox[Tx] }

// BeginClaim implements store.BeginBatcher.
func (s stepwise[Tx]) BeginClaim(ctx context.Context, consumer string, msgs []store.ClaimRequest) (tx Tx, results []store.ClaimResult, err error) {
	tx, err = s.begin(ctx, func(tx Tx) error {
		if results, err = s.store.Claim(ctx, tx, consumer, msgs); err != nil {
			return fmt.Errorf("claim: %w", err)
		}
		return nil
	})
	return tx, results, err
}

// begin begins a transaction and runs its first steps; it rolls back if they fail.
func (s stepwise[Tx]) begin(ctx context.Context, steps func(tx Tx) error) (_ Tx, err error) {
	var none Tx
	tx, err := beginLimited(ctx, s.store)
	if err != nil {
		return none, fmt.Errorf("begin: %w", err)
	}
	if err := steps(tx); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		return none, errors.Join(err, s.store.Rollback(ctx, tx))
	}
	return tx, nil
}
