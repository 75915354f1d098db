package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/handlers"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/relay"
)

// Handler processes a message in the transaction tx. A nil error commits its changes. An error undoes them and decides
// the outcome, as in a relay: see postrider.Retry, Snooze, Dead, Discard and Unavailable; any other is retried with backoff. It
// must not commit or roll back tx, use it after returning, or ignore the error of a statement in it: the database may
// have rolled back everything.
type Handler[Tx any] func(ctx context.Context, tx Tx, m *postrider.Message) error

// Handle registers h for the messages of a definition: one type, one schema version. A message that cannot be decoded is
// dead-lettered at once; one of a version without a handler or upcaster is parked as unhandled. Call Handle before Run. Errors:
// postrider.ErrDuplicateDefinition when the consumer has a handler or upcaster for this type and version;
// *postrider.ValidationError for an invalid definition; ErrStarted.
func Handle[Tx, T any](c *Consumer[Tx], d postrider.Definition[T], h func(ctx context.Context, tx Tx, m postrider.Typed[T]) error) error {
	return c.register(d.Type(), h == nil, func() error {
		if c.batches[d.Type()] != nil {
			return ErrDuplicateHandler
		}
		return c.handlers.Add(d, func(ctx context.Context, tx Tx, m *postrider.Message) error {
			typed, err := d.Decode(m)
			if err != nil {
				return err
			}
			return h(ctx, tx, typed)
		})
	})
}

// Upcast handles the messages of an older definition as those of a newer one of the same type: convert turns the older
// data into the newer. The handler of the newer version, or a further upcaster, then takes the message; it sees the newer
// schema version and payload, and everything else as published. Call Upcast before Run. Errors: as in Handle;
// ErrDuplicateHandler if a batch takes the type (HandleBatch).
func Upcast[Tx, From, To any](c *Consumer[Tx], from postrider.Definition[From], to postrider.Definition[To], convert func(From) (To, error)) error {
	return c.register(from.Type(), convert == nil, func() error {
		if c.batches[from.Type()] != nil { // its begin would see the messages as published
			return ErrDuplicateHandler
		}
		return handlers.AddUpcast(&c.handlers, from, to, convert)
	})
}

// HandleFunc registers h for all messages of a type, except schema versions that have their own handler or upcaster. Call
// it before Run. Errors: ErrDuplicateHandler; ErrStarted.
func (c *Consumer[Tx]) HandleFunc(messageType string, h Handler[Tx]) error {
	return c.register(messageType, h == nil, func() error {
		if !c.handlers.AddAny(messageType, h) {
			return ErrDuplicateHandler
		}
		return nil
	})
}

// register adds a function for a message type, and makes parked messages of this type retry.
func (c *Consumer[Tx]) register(messageType string, missing bool, add func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := ErrStarted
	switch {
	case messageType == "" || missing:
		err = errors.New("a message type and a function are needed")
	case !c.started:
		err = add()
	}
	if err == nil {
		err = c.retries.HandleFunc(stored.Fit(messageType, postrider.MaxTypeBytes), c.processParked)
		if errors.Is(err, relay.ErrDuplicateHandler) {
			err = nil // for another version of it
		}
	}
	if err != nil {
		return fmt.Errorf("handle %q: %w", messageType, err)
	}
	return nil
}
