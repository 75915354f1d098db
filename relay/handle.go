package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/handlers"
)

// Handle registers h for the messages of a definition: one type, one schema version. A message that cannot be decoded is
// dead-lettered at once; one of a version without a handler or upcaster is parked as unhandled (Config.UnhandledFor). Handle
// must be called before Run. Errors: postrider.ErrDuplicateDefinition if the relay has a handler or upcaster for this type and
// version; *postrider.ValidationError for an invalid definition; ErrStarted; an error if the relay has a publisher.
func Handle[T any](r *Relay, d postrider.Definition[T], h func(ctx context.Context, m postrider.Typed[T]) error) error {
	return r.addTyped(d, h == nil, withoutTx, d.Handler(h))
}

// Upcast handles the messages of an older definition as those of a newer one of the same type: convert turns the older data
// into the newer. The handler of the newer version, or a further upcaster, then takes the message; it sees the newer schema
// version and payload, and everything else as published. It must be called before Run. Errors: as in Handle;
// ErrDuplicateHandler if a batch takes the type (HandleTxBatch).
func Upcast[From, To any](r *Relay, from postrider.Definition[From], to postrider.Definition[To], convert func(From) (To, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.mayHandle(from.Type(), convert == nil); err != nil {
		return err
	}
	if r.batches[from.Type()] != nil { // its begin would see the messages as published
		return fmt.Errorf("handle %q: %w", from.Type(), ErrDuplicateHandler)
	}
	if err := handlers.AddUpcast(&r.handlers, from, to, convert); err != nil {
		return fmt.Errorf("handle %q: %w", from.Type(), err)
	}
	return nil
}

// HandleFunc registers h for all messages of a type, except schema versions that have a handler or upcaster of their own. It
// must be called before Run. Errors: ErrDuplicateHandler; ErrStarted; an error if the relay has a publisher.
func (r *Relay) HandleFunc(messageType string, h postrider.Handler) error {
	return r.addAny(messageType, h == nil, withoutTx, h)
}

// addTyped adds a handler for the messages of a definition.
func (r *Relay) addTyped(d postrider.AnyDefinition, missing bool, source txSource, h postrider.Handler) error {
	return r.add(d.Type(), missing, source, func() error {
		if r.batches[d.Type()] != nil {
			return ErrDuplicateHandler
		}
		return r.handlers.Add(d, r.intercepted(h))
	})
}

// addAny adds a handler for the messages of a type.
func (r *Relay) addAny(messageType string, missing bool, source txSource, h postrider.Handler) error {
	return r.add(messageType, missing, source, func() error {
		if !r.handlers.AddAny(messageType, r.intercepted(h)) {
			return ErrDuplicateHandler
		}
		return nil
	})
}

// txSource returns where handlers get their transactions from: nil for handlers without transactions.
type txSource func(r *Relay) (transactor, error)

func withoutTx(*Relay) (transactor, error) { return nil, nil }

// add adds a handler if its transactions have the same source as those of the others.
func (r *Relay) add(messageType string, missing bool, source txSource, put func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.mayHandle(messageType, missing); err != nil {
		return err
	}
	tx, err := source(r)
	if err == nil && r.handlers.Some() && tx != r.tx {
		err = errors.New("the relay's other handlers have another kind of transaction, or none; give these a relay of their own")
	}
	if err == nil {
		err = put()
	}
	if err != nil {
		return fmt.Errorf("handle %q: %w", messageType, err)
	}
	if r.tx = tx; tx != nil {
		r.cfg.MaxBatch = r.cfg.TxBatch
	}
	return nil
}

// mayHandle says why a handler cannot be added.
func (r *Relay) mayHandle(messageType string, missing bool) error {
	switch {
	case r.started:
		return fmt.Errorf("handle %q: %w", messageType, ErrStarted)
	case r.publish != nil:
		return fmt.Errorf("handle %q: relay %s sends its messages to a publisher; handlers need a relay of their own",
			messageType, r.cfg.Name)
	case messageType == "" || missing:
		return fmt.Errorf("handle %q: a message type and a handler are needed", messageType)
	}
	return nil
}

func (r *Relay) intercepted(h postrider.Handler) postrider.Handler {
	for i := len(r.cfg.Interceptors) - 1; i >= 0; i-- {
		h = r.cfg.Interceptors[i](h)
	}
	return h
}

// handle calls the handler of a message.
func (r *Relay) handle(ctx context.Context, m *postrider.Message) error {
	h, m, err := r.handlers.Find(m)
	if err != nil {
		return err
	}
	if r.cfg.Propagator != nil {
		ctx = r.cfg.Propagator.Extract(ctx, m.Headers)
	}
	return h(postrider.ContextWithMessage(r.withMaxAttempts(ctx, m), m), m)
}
