package relay

import (
	"context"
	"errors"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay/internal/schedule"
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

// handling runs the handlers of messages in their transaction.
type handling struct {
	*Relay
	tx    transaction
	batch []*item
	begun time.Time
	done  int // messages handled so far
	// at is the message that an error is about, and together how many messages from it on it may be about.
	at, together int
}

// all handles messages until none is left, or no time.
func (h *handling) all(ctx context.Context) error {
	for h.done < len(h.batch) && h.hasTime() {
		if err := h.next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// hasTime says whether there is time for another message. Those that were committed late are handled in any case.
func (h *handling) hasTime() bool {
	return h.done == 0 || h.done < schedule.Late(h.batch) || time.Since(h.begun) < h.cfg.LeaseTTL/3
}

// next handles a message, or those of a Batch.
func (h *handling) next(ctx context.Context) error {
	begin, msgs, end := h.following()
	if begin == nil {
		h.at, h.together = h.done, 1
		return h.attempt(ctx, h.batch[h.done])
	}
	first := h.done
	h.at, h.together = first, end-first
	var b Batch
	err := h.bounded(ctx, func(ctx context.Context) (err error) {
		b, err = begin(h.tx.within(ctx), msgs)
		return err
	})
	if err != nil {
		return err
	}
	ctx = context.WithValue(ctx, batchKey{}, b)
	for h.done < end && h.hasTime() {
		h.at, h.together = h.done, 1
		if err := h.attempt(ctx, h.batch[h.done]); err != nil {
			return err
		}
	}
	h.at, h.together = first, h.done-first
	return h.bounded(ctx, func(ctx context.Context) error { return b.End(h.tx.within(ctx)) })
}

// following returns what begins the Batch of the next messages, those that follow one another in it, and the index after them; nil for a
// message without one. A message that is not due does not separate others.
func (h *handling) following() (begin func(context.Context, []*postrider.Message) (Batch, error), msgs []*postrider.Message, end int) {
	var b *txBatch
	end = h.done
	for i, it := range h.batch[h.done:] {
		of := h.batches[it.Message.Type]
		switch {
		case it.NotDue && b != nil:
			continue
		case of == nil || b != nil && of != b || it.NotDue || it.Message.err != nil || it.Refused != nil || it.Message.foreign:
			return begin, msgs, end
		}
		b, begin, msgs, end = of, of.begin, append(msgs, it.Message.Message), h.done+i+1
	}
	return begin, msgs, end
}

// attempt runs the handler of a message.
func (h *handling) attempt(ctx context.Context, it *item) error {
	switch {
	case it.NotDue: // the transaction parks it
		h.done++
		return nil
	case it.Message.err != nil:
		return postrider.Dead(postrider.Undecodable, it.Message.err)
	case it.Refused != nil:
		return it.Refused
	case it.Message.foreign:
		return errForeign
	}
	m := *it.Message.Message // the handler may run again
	m.Attempt = it.Attempts + 1
	err := h.bounded(ctx, func(ctx context.Context) error { return h.handle(h.tx.within(ctx), &m) })
	if err == nil {
		h.done++
	}
	return err
}

// bounded calls f with the time of an attempt.
func (h *handling) bounded(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, end := h.boundAttempt(ctx, time.Now())
	defer end()
	return f(ctx)
}
