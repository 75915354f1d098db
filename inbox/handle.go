package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

// Handler processes a message in the transaction tx. A nil error commits its changes. An error undoes them and decides
// the outcome, as in a relay: see postrider.Retry, Snooze, Dead and Unavailable; any other is retried with backoff. It
// must not commit or roll back tx, use it after returning, or ignore the error of a statement in it: the database may
// have rolled back everything.
type Handler[Tx any] func(ctx context.Context, tx Tx, m *postrider.Message) error

// handlers are a consumer's handlers and upcasters.
type handlers[Tx any] struct {
	catalog postrider.Catalog
	typed   map[string]map[int]Handler[Tx] // by message type and schema version
	upcast  map[string]map[int]upcaster    // likewise
	any     map[string]Handler[Tx]         // by message type, for every other version
}

// upcaster converts a message to a newer schema version.
type upcaster func(m *postrider.Message) (*postrider.Message, error)

var errUnhandled = errors.New("no handler takes messages of this type; start a process that has one, or let the consumer " +
	"skip them with ConsumerConfig.Unhandled")

// Handle registers h for the messages of a definition: one type, one schema version. A message that cannot be decoded is
// dead-lettered at once. Call Handle before Run. Errors: postrider.ErrDuplicateDefinition when the consumer has a handler
// or upcaster for this type and version; *postrider.ValidationError for an invalid definition; ErrStarted.
func Handle[Tx, T any](c *Consumer[Tx], d postrider.Definition[T], h func(ctx context.Context, tx Tx, m postrider.Typed[T]) error) error {
	return c.register(d.Type(), h == nil, func() error {
		if err := c.handlers.catalog.Add(d); err != nil {
			return err
		}
		put(c.handlers.typed, d, Handler[Tx](func(ctx context.Context, tx Tx, m *postrider.Message) error {
			typed, err := d.Decode(m)
			if err != nil {
				return err
			}
			return h(ctx, tx, typed)
		}))
		return nil
	})
}

// Upcast handles the messages of an older definition as those of a newer one of the same type: convert turns the older
// data into the newer. The handler of the newer version, or a further upcaster, then takes the message; it sees the newer
// schema version and payload, and everything else as published. Call Upcast before Run. Errors: as in Handle.
func Upcast[Tx, From, To any](c *Consumer[Tx], from postrider.Definition[From], to postrider.Definition[To], convert func(From) (To, error)) error {
	return c.register(from.Type(), convert == nil, func() error {
		if from.Type() != to.Type() || from.SchemaVersion() >= to.SchemaVersion() {
			return fmt.Errorf("upcast from %s version %d to %s version %d: it leads to a newer version of the same type",
				from.Type(), from.SchemaVersion(), to.Type(), to.SchemaVersion())
		}
		if err := errors.Join(to.Validate(), c.handlers.catalog.Add(from)); err != nil {
			return err
		}
		put(c.handlers.upcast, from, func(m *postrider.Message) (*postrider.Message, error) {
			old, err := from.Decode(m)
			if err != nil {
				return nil, err
			}
			data, err := convert(old.Data)
			if err != nil {
				return nil, fmt.Errorf("upcast %s from version %d to %d: %w", m.Type, from.SchemaVersion(), to.SchemaVersion(), err)
			}
			made, err := to.New(data)
			if err != nil {
				return nil, err
			}
			newer := *m
			newer.Payload, newer.SchemaVersion, newer.ContentType = made.Payload, made.SchemaVersion, made.ContentType
			return &newer, nil
		})
		return nil
	})
}

func put[F any](byType map[string]map[int]F, d postrider.AnyDefinition, f F) {
	if byType[d.Type()] == nil {
		byType[d.Type()] = make(map[int]F)
	}
	byType[d.Type()][d.SchemaVersion()] = f
}

// HandleFunc registers h for all messages of a type, except schema versions that have their own handler or upcaster. Call
// it before Run. Errors: ErrDuplicateHandler; ErrStarted.
func (c *Consumer[Tx]) HandleFunc(messageType string, h Handler[Tx]) error {
	return c.register(messageType, h == nil, func() error {
		if c.handlers.any[messageType] != nil {
			return ErrDuplicateHandler
		}
		c.handlers.any[messageType] = h
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
		err = c.retries.HandleFunc(storableText(messageType, postrider.MaxTypeBytes), c.processParked)
		if errors.Is(err, relay.ErrDuplicateHandler) {
			err = nil // for another version of it
		}
	}
	if err != nil {
		return fmt.Errorf("handle %q: %w", messageType, err)
	}
	return nil
}

// find returns the handler for a message, and the message as that handler sees it.
func (h *handlers[Tx]) find(m *postrider.Message) (Handler[Tx], *postrider.Message, error) {
	for {
		version := cmp.Or(m.SchemaVersion, 1)
		if f := h.typed[m.Type][version]; f != nil {
			return f, m, nil
		}
		up := h.upcast[m.Type][version]
		if up == nil {
			break
		}
		newer, err := up(m)
		if err != nil {
			return nil, nil, err
		}
		m = newer
	}
	if f := h.any[m.Type]; f != nil {
		return f, m, nil
	}
	if h.knows(m.Type) {
		return nil, nil, postrider.Dead(UnknownSchemaVersion, fmt.Errorf("no handler or upcaster takes version %d of %s",
			cmp.Or(m.SchemaVersion, 1), m.Type))
	}
	return nil, nil, errUnhandled
}

// some says whether there are any handlers.
func (h *handlers[Tx]) some() bool { return len(h.typed)+len(h.any) > 0 }

// knows says whether any version of a message type has a handler.
func (h *handlers[Tx]) knows(messageType string) bool {
	return h.any[messageType] != nil || h.typed[messageType] != nil || h.upcast[messageType] != nil
}
