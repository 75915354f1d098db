package relay

import (
	"context"
	"errors"

	"github.com/postrider/postrider"
)

// Batch handles messages that follow one another in a transaction, see HandleTxBatch. An error ends it, and its transaction is rolled
// back.
type Batch interface {
	// Handle handles the next message.
	Handle(ctx context.Context, m *postrider.Message) error
	// End writes what the calls of Handle have left to be written. Nothing is written if it fails.
	End(ctx context.Context) error
}

// HandleTxBatch is HandleTxFunc for messages that take fewer statements together than one by one. begin is given all messages of some
// types that follow one another in a transaction, up to Config.TxBatch of them, and returns a Batch, which is then given one after
// another; there may not be time for all. No other handler runs before its End. begin must not change the messages.
//
// An error of Batch.Handle is that of its message. After an error of begin or of Batch.End, the messages are tried again in halves, until
// the one that fails is alone, so that it counts as an attempt of no other message. No message type of it may have other handlers.
// Errors: as in HandleTxFunc.
func HandleTxBatch[Tx any](
	r *Relay, types []string, begin func(ctx context.Context, tx Tx, messages []*postrider.Message) (Batch, error),
) error {
	shared := &txBatch{begin: func(ctx context.Context, messages []*postrider.Message) (Batch, error) {
		return begin(ctx, txOf[Tx](ctx), messages)
	}}
	handle := r.intercepted(func(ctx context.Context, m *postrider.Message) error {
		return ctx.Value(batchKey{}).(Batch).Handle(ctx, m)
	})
	var errs []error
	for _, messageType := range types {
		errs = append(errs, r.add(messageType, begin == nil, withTx[Tx], func() error {
			if r.handlers.Knows(messageType) || !r.handlers.AddAny(messageType, handle) {
				return ErrDuplicateHandler
			}
			r.batches[messageType] = shared
			return nil
		}))
	}
	return errors.Join(errs...)
}

// txBatch begins batches of some types.
type txBatch struct {
	begin func(ctx context.Context, messages []*postrider.Message) (Batch, error)
}

// batchKey is that of the running Batch in the context of a handler.
type batchKey struct{}
