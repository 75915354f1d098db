package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider"
)

// handlers are the message handlers of this process.
type handlers struct {
	catalog postrider.Catalog
	typed   map[string]map[int]postrider.Handler // by message type and schema version
	any     map[string]postrider.Handler         // by message type, for every other version
}

// find returns the handler for a message, or nil.
func (h *handlers) find(m *postrider.Message) postrider.Handler {
	if f := h.typed[m.Type][cmp.Or(m.SchemaVersion, 1)]; f != nil {
		return f
	}
	return h.any[m.Type]
}

// some reports whether there are any.
func (h *handlers) some() bool { return len(h.typed)+len(h.any) > 0 }

// Handle registers h for the messages of a definition: one type, one schema version. A message that cannot be decoded is
// dead-lettered at once. Handle must be called before Run. Errors: postrider.ErrDuplicateDefinition if the relay has a
// handler for this type and version; *postrider.ValidationError for an invalid definition; ErrStarted; an error if the relay
// has a publisher.
func Handle[T any](r *Relay, d postrider.Definition[T], h func(ctx context.Context, m postrider.Typed[T]) error) error {
	return r.addTyped(d, h == nil, withoutTx, d.Handler(h))
}

// HandleFunc registers h for all messages of a type, except schema versions that have a handler of their own (Handle). It
// must be called before Run. Errors: ErrDuplicateHandler; ErrStarted; an error if the relay has a publisher.
func (r *Relay) HandleFunc(messageType string, h postrider.Handler) error {
	return r.addAny(messageType, h == nil, withoutTx, h)
}

// addTyped adds a handler for the messages of a definition.
func (r *Relay) addTyped(d postrider.AnyDefinition, missing bool, kind handlerKind, h postrider.Handler) error {
	return r.add(d.Type(), missing, kind, func() error {
		if err := r.handlers.catalog.Add(d); err != nil {
			return err
		}
		versions := r.handlers.typed[d.Type()]
		if versions == nil {
			versions = make(map[int]postrider.Handler)
			r.handlers.typed[d.Type()] = versions
		}
		versions[d.SchemaVersion()] = r.intercepted(h)
		return nil
	})
}

// addAny adds a handler for the messages of a type.
func (r *Relay) addAny(messageType string, missing bool, kind handlerKind, h postrider.Handler) error {
	return r.add(messageType, missing, kind, func() error {
		if r.handlers.any[messageType] != nil {
			return ErrDuplicateHandler
		}
		r.handlers.any[messageType] = r.intercepted(h)
		return nil
	})
}

// handlerKind returns what handlers get their transactions from: nil for handlers without transactions.
type handlerKind func(r *Relay) (transactor, error)

func withoutTx(*Relay) (transactor, error) { return nil, nil }

// add adds a handler if it is of the same kind as the existing ones.
func (r *Relay) add(messageType string, missing bool, kind handlerKind, put func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.mayHandle(messageType, missing); err != nil {
		return err
	}
	tx, err := kind(r)
	if err == nil && r.handlers.some() && tx != r.tx {
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
	h := r.handlers.find(m)
	if h == nil {
		return errUnhandled
	}
	if r.cfg.Propagator != nil {
		ctx = r.cfg.Propagator.Extract(ctx, m.Headers)
	}
	return h(postrider.ContextWithMessage(ctx, m), m)
}
