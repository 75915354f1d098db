// Package handlers keeps the handlers of a relay or consumer, and finds the one for a message.
package handlers

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/postrider/postrider"
)

// Set holds handlers of type H and upcasters, by message type and schema version. The zero value is empty and ready to use.
// Find may be called concurrently, but not while something is added.
type Set[H any] struct {
	catalog postrider.Catalog
	typed   map[string]map[int]H
	upcast  map[string]map[int]upcaster
	any     map[string]H // by message type, for every other version
}

// upcaster converts a message to a newer schema version.
type upcaster func(m *postrider.Message) (*postrider.Message, error)

// Add adds a handler for one type and schema version. Errors: postrider.ErrDuplicateDefinition, *postrider.ValidationError.
func (s *Set[H]) Add(d postrider.AnyDefinition, h H) error {
	if err := s.catalog.Add(d); err != nil {
		return err
	}
	put(&s.typed, d, h)
	return nil
}

// AddAny adds a handler for all versions of a type that have neither a handler nor an upcaster of their own. It reports false
// if there is one already.
func (s *Set[H]) AddAny(messageType string, h H) bool {
	if _, exists := s.any[messageType]; exists {
		return false
	}
	if s.any == nil {
		s.any = make(map[string]H)
	}
	s.any[messageType] = h
	return true
}

// AddUpcast lets messages of an older definition be handled as those of a newer one. Errors: as in Add, and for definitions
// that are not of one type, from older to newer.
func AddUpcast[H, From, To any](s *Set[H], from postrider.Definition[From], to postrider.Definition[To], convert func(From) (To, error)) error {
	if from.Type() != to.Type() || from.SchemaVersion() >= to.SchemaVersion() {
		return fmt.Errorf("upcast from %s version %d to %s version %d: it must lead to a newer version of the same type",
			from.Type(), from.SchemaVersion(), to.Type(), to.SchemaVersion())
	}
	if err := errors.Join(to.Validate(), s.catalog.Add(from)); err != nil {
		return err
	}
	put(&s.upcast, from, func(m *postrider.Message) (*postrider.Message, error) {
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
}

func put[F any](byType *map[string]map[int]F, d postrider.AnyDefinition, f F) {
	if *byType == nil {
		*byType = make(map[string]map[int]F)
	}
	if (*byType)[d.Type()] == nil {
		(*byType)[d.Type()] = make(map[int]F)
	}
	(*byType)[d.Type()][d.SchemaVersion()] = f
}

// Find returns the handler for a message, and the message in the schema version that the handler takes. Errors: those of
// upcasters; postrider.ErrUnhandled.
func (s *Set[H]) Find(m *postrider.Message) (H, *postrider.Message, error) {
	var none H
	for {
		version := cmp.Or(m.SchemaVersion, 1)
		if h, ok := s.typed[m.Type][version]; ok {
			return h, m, nil
		}
		up := s.upcast[m.Type][version]
		if up == nil {
			break
		}
		newer, err := up(m)
		if err != nil {
			return none, nil, err
		}
		m = newer
	}
	if h, ok := s.any[m.Type]; ok {
		return h, m, nil
	}
	return none, nil, s.unhandled(m)
}

// Oldest returns the oldest version of a message type that an upcaster converts, 0 if there is none.
func (s *Set[H]) Oldest(messageType string) (oldest int) {
	for version := range s.upcast[messageType] {
		if oldest == 0 || version < oldest {
			oldest = version
		}
	}
	return oldest
}

// unhandled says why no handler takes a message.
func (s *Set[H]) unhandled(m *postrider.Message) error {
	if !s.Knows(m.Type) {
		return fmt.Errorf("%w: there is none for the type %s", postrider.ErrUnhandled, m.Type)
	}
	known := slices.Sorted(maps.Keys(s.typed[m.Type]))
	return fmt.Errorf("%w: it has the schema version %d of %s, and there are handlers for %v",
		postrider.ErrUnhandled, cmp.Or(m.SchemaVersion, 1), m.Type, known)
}

// Some reports whether there are any handlers.
func (s *Set[H]) Some() bool { return len(s.typed)+len(s.any) > 0 }

// Knows reports whether any version of a message type has a handler or upcaster.
func (s *Set[H]) Knows(messageType string) bool {
	_, ok := s.any[messageType]
	return ok || s.typed[messageType] != nil || s.upcast[messageType] != nil
}
