package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

// beginBatch begins the handling of messages in a transaction.
type beginBatch[Tx any] func(ctx context.Context, tx Tx, messages []*postrider.Message) (relay.Batch, error)

// HandleBatch is HandleFunc for messages that take fewer statements together than one by one. begin is given all messages of some types
// that follow one another in a transaction, and returns a relay.Batch, which is then given one after another. Some may not be
// handled, because they are parked or there is no time for them. No other handler runs before its End. begin must not change the messages.
//
// If one of several messages fails, or begin or End does, the transaction is run again, and each has a Batch of its own. Errors: as in
// HandleFunc. No message type may have other handlers.
func (c *Consumer[Tx]) HandleBatch(types []string, begin func(ctx context.Context, tx Tx, messages []*postrider.Message) (relay.Batch, error)) error {
	shared := &batchHandler[Tx]{begin}
	var errs []error
	for _, messageType := range types {
		errs = append(errs, c.register(messageType, begin == nil, func() error {
			if c.handlers.Knows(messageType) || !c.handlers.AddAny(messageType, shared.handle) {
				return ErrDuplicateHandler
			}
			c.batches[messageType] = shared
			return nil
		}))
	}
	return errors.Join(errs...)
}

// batchHandler handles the messages of some types.
type batchHandler[Tx any] struct{ begin beginBatch[Tx] }

// batchKey is that of the running relay.Batch in the context of a handler.
type batchKey struct{}

// handle handles a message in the running Batch, or else in one of its own.
func (h *batchHandler[Tx]) handle(ctx context.Context, tx Tx, m *postrider.Message) error {
	if b, running := ctx.Value(batchKey{}).(relay.Batch); running {
		return b.Handle(ctx, m)
	}
	b, err := h.begin(ctx, tx, []*postrider.Message{m})
	if err == nil {
		err = b.Handle(ctx, m)
	}
	if err == nil {
		err = b.End(ctx)
	}
	return err
}

// next processes a message, or those of a Batch.
func (t *transaction[Tx]) next(ctx context.Context, rest []*item) error {
	h, msgs := t.following(rest)
	if h == nil {
		return t.deliverNext(ctx, rest[0])
	}
	var b relay.Batch
	if err := t.bounded(ctx, func(ctx context.Context) (err error) {
		b, err = h.begin(ctx, t.tx, msgs)
		return err
	}); err != nil {
		return err
	}
	within := context.WithValue(ctx, batchKey{}, b)
	for _, it := range rest[:len(msgs)] {
		if err := t.deliverNext(within, it); err != nil {
			return err
		}
	}
	return t.bounded(ctx, b.End)
}

// bounded calls a function for several messages with the time of an attempt.
func (t *transaction[Tx]) bounded(ctx context.Context, f func(ctx context.Context) error) error {
	bound := ctx
	if limit := t.cfg.AttemptTimeout; limit > 0 {
		var cancel context.CancelFunc
		bound, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("attempt took longer than %s: %w", limit, context.DeadlineExceeded))
		defer cancel()
	}
	err := f(bound)
	if err != nil && ctx.Err() == nil {
		return oneFailed(err) // the error will recur in the second run, and count then
	}
	return err
}

// deliverNext processes a message, if there is time for it.
func (t *transaction[Tx]) deliverNext(ctx context.Context, it *item) error {
	if t.done > 0 && time.Since(t.begun) >= t.cfg.batchTime() {
		return errNoTime
	}
	err := t.deliver(ctx, it)
	if err == nil {
		t.done++
	}
	return err
}

// following returns the handler of the next messages, and those that follow one another in its Batch; nil for a message without one.
// A message that has a savepoint has a Batch of its own.
func (t *transaction[Tx]) following(rest []*item) (h *batchHandler[Tx], msgs []*postrider.Message) {
	if t.how != together {
		return nil, nil
	}
	for _, it := range rest {
		seen := restored(it.msg)
		of := t.batches[seen.Type]
		if of == nil || h != nil && of != h || it.fate != nil {
			break
		}
		h, msgs = of, append(msgs, seen)
	}
	return h, msgs
}
