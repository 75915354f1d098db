package relay

import (
	"cmp"
	"context"
	"fmt"

	"github.com/postrider/postrider"
)

// handlers are the functions that work on messages in this process.
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

// Handle lets h work on the messages of a definition: one type, one schema version. A message that cannot be decoded goes
// to the dead letters at once. Handle is to be called before Run. Errors: postrider.ErrDuplicateDefinition when the
// relay has a handler for this type and version; *postrider.ValidationError for a faulty definition; ErrStarted; an error
// when the relay has a publisher.
func Handle[T any](r *Relay, d postrider.Definition[T], h func(ctx context.Context, m postrider.Typed[T]) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.mayHandle(d.Type(), h == nil); err != nil {
		return err
	}
	if err := r.handlers.catalog.Add(d); err != nil {
		return fmt.Errorf("handle %q: %w", d.Type(), err)
	}
	versions := r.handlers.typed[d.Type()]
	if versions == nil {
		versions = make(map[int]postrider.Handler)
		r.handlers.typed[d.Type()] = versions
	}
	versions[d.SchemaVersion()] = r.intercepted(d.Handler(h))
	return nil
}

// HandleFunc lets h work on all messages of a type, but for schema versions that have a handler of their own (Handle). It
// is to be called before Run. Errors: ErrDuplicateHandler; ErrStarted; an error when the relay has a publisher.
func (r *Relay) HandleFunc(messageType string, h postrider.Handler) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.mayHandle(messageType, h == nil); err != nil {
		return err
	}
	if r.handlers.any[messageType] != nil {
		return fmt.Errorf("handle %q: %w", messageType, ErrDuplicateHandler)
	}
	r.handlers.any[messageType] = r.intercepted(h)
	return nil
}

// mayHandle says why a handler cannot be taken.
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
