package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider"
)

// openerOf is the store's Opener, or one that takes a step after the other.
func openerOf[Tx any](store Store[Tx]) Opener[Tx] {
	if o, ok := store.(Opener[Tx]); ok {
		return o
	}
	return stepwise[Tx]{store}
}

// stepwise opens transactions on a store that has no Opener.
type stepwise[Tx any] struct{ store Store[Tx] }

// BeginClaim implements Opener.
func (s stepwise[Tx]) BeginClaim(ctx context.Context, consumer string, msgs []Candidate) (Tx, []Standing, error) {
	return beginWith(ctx, s.store, "claim", func(tx Tx) ([]Standing, error) { return s.store.Claim(ctx, tx, consumer, msgs) })
}

// BeginWatermark implements Opener.
func (s stepwise[Tx]) BeginWatermark(ctx context.Context, consumer string, at postrider.Position) (Tx, Watermark, error) {
	return beginWith(ctx, s.store, "read the watermark", func(tx Tx) (Watermark, error) { return s.store.Watermark(ctx, tx, consumer, at) })
}

// beginWith begins a transaction and takes its first step, or ends it.
func beginWith[Tx, T any](ctx context.Context, store Store[Tx], doing string, step func(tx Tx) (T, error)) (_ Tx, out T, err error) {
	var none Tx
	tx, err := store.Begin(ctx)
	if err != nil {
		return none, out, fmt.Errorf("begin: %w", err)
	}
	if out, err = step(tx); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		return none, out, errors.Join(fmt.Errorf("%s: %w", doing, err), store.Rollback(ctx, tx))
	}
	return tx, out, nil
}
