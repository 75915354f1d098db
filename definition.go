package postrider

import (
	"cmp"
	"context"
	"fmt"
	"math"
)

// Definition binds a Go type to a message type and a schema version, so that publishers and handlers of a message agree
// on it in one place:
//
//	var OrderPlaced = postrider.Define[OrderPlacedData]("order.placed").
//		WithTopic("orders").
//		WithKey(func(d OrderPlacedData) string { return "order/" + d.OrderID })
//
// A Definition is a value: the With methods return a changed copy. What is wrong with it is reported by Validate, which
// New and everything that registers definitions call.
type Definition[T any] struct {
	messageType string
	version     int
	topic       string
	key         func(T) string
	codec       Codec
}

// Define starts the definition of a message type with T as its data: schema version 1, the type as topic, no key, JSON.
func Define[T any](messageType string) Definition[T] {
	return Definition[T]{messageType: messageType, version: 1, codec: JSON{}}
}

// WithSchemaVersion sets the version of the payload's shape, from 1. Definitions of the same message type with different
// versions, and Go types, can stand side by side.
func (d Definition[T]) WithSchemaVersion(version int) Definition[T] {
	d.version = version
	return d
}

// WithTopic sets the topic of new messages. Default: the message type.
func (d Definition[T]) WithTopic(topic string) Definition[T] {
	d.topic = topic
	return d
}

// WithKey says how the key of a new message, its unit of order, follows from its data. Default: no key, no order.
func (d Definition[T]) WithKey(key func(T) string) Definition[T] {
	d.key = key
	return d
}

// WithCodec sets how data becomes payload and back. Default: JSON{}.
func (d Definition[T]) WithCodec(c Codec) Definition[T] {
	d.codec = c
	return d
}

// Type is the message type.
func (d Definition[T]) Type() string { return d.messageType }

// SchemaVersion is the version of the payload's shape.
func (d Definition[T]) SchemaVersion() int { return d.version }

// Topic is the topic of new messages.
func (d Definition[T]) Topic() string { return cmp.Or(d.topic, d.messageType) }

// Validate reports everything that is wrong with the definition, as a *ValidationError.
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

// New makes a message of data, ready for Publish; its other fields may be set before. Errors: *ValidationError for a
// definition that is not valid, otherwise the codec's.
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

// Undecodable is the reason of dead letters whose payload is not what their definition says.
const Undecodable = "undecodable"

// Decode reads the data of a message. A message without a schema version counts as version 1. The error is a verdict: the
// message is dead, for the reason Undecodable, because no further attempt could read it.
func (d Definition[T]) Decode(m *Message) (Typed[T], error) {
	t := Typed[T]{Message: m}
	if err := d.Validate(); err != nil {
		return t, fmt.Errorf("define message %q: %w", d.messageType, err)
	}
	if version := cmp.Or(m.SchemaVersion, 1); m.Type != d.messageType || version != d.version {
		return t, Dead(Undecodable, fmt.Errorf("message is %s version %d, the definition is for %s version %d",
			m.Type, version, d.messageType, d.version))
	}
	if err := d.codec.Decode(m.Payload, &t.Data); err != nil {
		return t, Dead(Undecodable, fmt.Errorf("decode %d bytes of %s as %s version %d: %w",
			len(m.Payload), cmp.Or(m.ContentType, "unknown content type"), d.messageType, d.version, err))
	}
	return t, nil
}

// Handler makes a Handler of one that takes typed messages.
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
