package inbox

import (
	"context"
	"errors"

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
