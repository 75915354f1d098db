package postrider

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
)

// AnyDefinition is a Definition[T] for any T.
type AnyDefinition interface {
	// Type and SchemaVersion together identify a definition.
	Type() string
	SchemaVersion() int
	// Topic is the topic of new messages.
	Topic() string
	// Validate reports every error in the definition.
	Validate() error
}

// ErrDuplicateDefinition says that the message type and schema version are already defined.
var ErrDuplicateDefinition = errors.New("message type and schema version are already defined")

// Catalog is a set of definitions, at most one per message type and schema version. The zero value is empty and ready to
// use. Concurrent Lookups are safe, but not concurrently with Add.
type Catalog struct {
	definitions map[definitionKey]AnyDefinition
}

type definitionKey struct {
	messageType string
	version     int
}

// Add puts definitions into the catalog: all of them, or none if one of them is invalid. It reports all errors at once:
// ErrDuplicateDefinition, *ValidationError.
func (c *Catalog) Add(definitions ...AnyDefinition) error {
	added := make(map[definitionKey]AnyDefinition, len(definitions))
	var errs []error
	for _, d := range definitions {
		k := definitionKey{d.Type(), d.SchemaVersion()}
		if err := d.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("define message %q: %w", d.Type(), err))
		}
		if c.definitions[k] != nil || added[k] != nil {
			errs = append(errs, fmt.Errorf("define message %q version %d: %w", d.Type(), d.SchemaVersion(),
				ErrDuplicateDefinition))
		}
		added[k] = d
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if c.definitions == nil {
		c.definitions = make(map[definitionKey]AnyDefinition, len(added))
	}
	maps.Copy(c.definitions, added)
	return nil
}

// Lookup returns the definition for a message type and schema version; version 0 counts as 1, as in Decode.
func (c *Catalog) Lookup(messageType string, version int) (AnyDefinition, bool) {
	d, ok := c.definitions[definitionKey{messageType, cmp.Or(version, 1)}]
	return d, ok
}
