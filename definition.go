package postrider

import (
	"cmp"
	"context"
	"fmt"
	"math"
)

// Definition binds a Go type to a message type and a schema version, so that a message's publishers and handlers share
// one declaration:
//
//	var OrderPlaced = postrider.Define[OrderPlacedData]("order.placed").
//		WithTopic("orders").
//		WithKey(func(d OrderPlacedData) string { return "order/" + d.OrderID })
//
// A Definition is a value: the With methods return a changed copy. Validate reports errors; New and everything that
// registers definitions call it.
type Definition[T any] struct {
	messageType string
	version     int
	topic       string
	key         func(T) string
	codec       Codec
}

// Define starts the definition of a message type with data of type T: schema version 1, the type as topic, no key, JSON.
func Define[T any](messageType string) Definition[T] {
	return Definition[T]{messageType: messageType, version: 1, codec: JSON{}}
}

// WithSchemaVersion sets the payload's schema version, from 1. Definitions of one message type with different versions
// and Go types can coexist.
func (d Definition[T]) WithSchemaVersion(version int) Definition[T] {
	d.version = version
	return d
}

// WithTopic sets the topic of new messages. Default: the message type.
func (d Definition[T]) WithTopic(topic string) Definition[T] {
	d.topic = topic
	return d
}

// WithKey sets the function that derives a new message's key, its unit of order, from its data. Default: no key, no
// order.
func (d Definition[T]) WithKey(key func(T) string) Definition[T] {
	d.key = key
	return d
}

// WithCodec sets the codec for the payload. Default: JSON{}.
func (d Definition[T]) WithCodec(c Codec) Definition[T] {
	d.codec = c
	return d
}

// Type is the message type.
func (d Definition[T]) Type() string { return d.messageType }

// SchemaVersion is the version of the payload's schema.
func (d Definition[T]) SchemaVersion() int { return d.version }

// Topic is the topic of new messages.
func (d Definition[T]) Topic() string { return cmp.Or(d.topic, d.messageType) }

// Validate reports every error in the definition, as a *ValidationError.
func (d Definition[T]) Validate() error {
	var f faults
	f.text("type", d.messageType, 1, MaxTypeBytes)
	f.text("topic", d.Topic(), 1, MaxTopicBytes)
	if d.version < 1 || d.version > math.MaxInt32 {
		f.add("schema_version", fmt.Sprintf("is %d, it counts from 1", d.version), math.MaxInt32)
	}
	if d.codec == nil {
		f.add("codec", "is nil", 0)
	}
	return f.err(0)
}

// New creates a message with data, ready for Publish; set its other fields before publishing. Errors: *ValidationError if
// the definition is invalid, otherwise the codec's.
func (d Definition[T]) New(data T) (*Message, error) {
	if err := d.Validate(); err != nil {
		return nil, fmt.Errorf("define message %q: %w", d.messageType, err)
	}
	payload, err := d.codec.Encode(data)
	if err != nil {
		return nil, fmt.Errorf("encode message %s version %d: %w", d.messageType, d.version, err)
	}
	m := &Message{
		Type: d.messageType, SchemaVersion: d.version, Topic: d.Topic(),
		ContentType: d.codec.ContentType(), Payload: payload,
	}
	if d.key != nil {
		m.Key = d.key(data)
	}
	return m, nil
}

// Undecodable is the reason of dead letters whose payload does not match its definition.
const Undecodable = "undecodable"

// Decode reads the data of a message. A message without a schema version counts as version 1. A message of a newer version
// yields ErrUnhandled, because a process of a newer release can handle it. One of another type or an older version, or one
// that cannot be decoded, yields a Dead error with the reason Undecodable, because no further attempt could succeed.
func (d Definition[T]) Decode(m *Message) (Typed[T], error) {
	t := Typed[T]{Message: m}
	if err := d.Validate(); err != nil {
		return t, fmt.Errorf("define message %q: %w", d.messageType, err)
	}
	if version := cmp.Or(m.SchemaVersion, 1); m.Type != d.messageType || version != d.version {
		err := fmt.Errorf("message is %s version %d, the definition is for %s version %d", m.Type, version, d.messageType, d.version)
		if m.Type == d.messageType && version > d.version {
			return t, fmt.Errorf("%w: %w", ErrUnhandled, err)
		}
		return t, Dead(Undecodable, err)
	}
	if err := d.codec.Decode(m.Payload, &t.Data); err != nil {
		return t, Dead(Undecodable, fmt.Errorf("decode %d bytes of %s as %s version %d: %w",
			len(m.Payload), cmp.Or(m.ContentType, "unknown content type"), d.messageType, d.version, err))
	}
	return t, nil
}

// Handler turns a handler of typed messages into a Handler.
func (d Definition[T]) Handler(handle func(context.Context, Typed[T]) error) Handler {
	return func(ctx context.Context, m *Message) error {
		t, err := d.Decode(m)
		if err != nil {
			return err
		}
		return handle(ctx, t)
	}
}

// Typed is a message with its data decoded.
type Typed[T any] struct {
	*Message
	Data T
}
