package postrider

import (
	"time"
)

// Message is one message with its envelope. The attribute names are those of CloudEvents 1.0 wherever one exists.
//
// A publisher fills Type and Payload and whatever else it wants; Publish fills the defaults named at each field. The
// fields under "Set on delivery" are for handlers and publishers to read; Publish ignores them.
type Message struct {
	// ID identifies the message for deduplication, wherever it travels: 1 to 64 bytes. Default: a new UUIDv7.
	ID string
	// Type says what happened or what is asked for, e.g. "order.placed": 1 to 128 bytes. Required.
	Type string
	// Source names the service that published the message, as a URI-reference. Default: the outbox's Source.
	Source string
	// Topic is the stream the message belongs to: 1 to 249 bytes. Default: Type.
	Topic string
	// Key is the unit of order, e.g. "order/42": at most 256 bytes. Messages with the same key are delivered in the
	// order in which they were published; the empty key promises no order.
	Key string
	// Subject names the thing that the message is about, if Source and Key do not say it.
	Subject string
	// Tenant names the customer on whose behalf the message was published: at most 64 bytes.
	Tenant string
	// Time is when the fact in the message came about. It plays no part in delivery. Default: now.
	Time time.Time
	// SchemaVersion is the version of the payload's shape, from 1; 0 means that none was given.
	SchemaVersion int
	// AggregateVersion is the version of the entity that the message describes, from 1; 0 means that none was given.
	AggregateVersion int64
	// ContentType is the media type of Payload. Default: "application/json".
	ContentType string
	// Headers travel with the message: at most 64 entries, 16 KiB of names and values together, no empty name.
	Headers map[string]string
	// CorrelationID groups all the messages of one business process. CausationID is the ID of the message whose handling
	// published this one. Both are at most 128 bytes, and both are filled by Publish inside a handler.
	CorrelationID, CausationID string
	// Payload is the content: by default at most 1 MiB (outbox.Config.MaxPayload).
	Payload []byte
	// DeliverAt puts delivery off until a moment, DeliverAfter for a time from now on, both on the database's clock.
	// Give at most one of them; DeliverAfter is positive. A delayed message leaves the order of its key: it takes its
	// turn when its time has come.
	DeliverAt    time.Time
	DeliverAfter time.Duration

	// Set on delivery.

	// Sequence is the message's place in the log of its outbox. Within a key it rises.
	Sequence int64
	// Attempt counts the deliveries of this message by this relay, from 1. A snooze does not count.
	Attempt int
	// CreatedAt is when the message was written, on the database's clock.
	CreatedAt time.Time
}

// Size is what the message takes in memory and on the wire, in bytes: payload, headers and text attributes.
func (m *Message) Size() int {
	n := len(m.Payload) + len(m.ID) + len(m.Type) + len(m.Source) + len(m.Topic) + len(m.Key) + len(m.Subject) +
		len(m.Tenant) + len(m.ContentType) + len(m.CorrelationID) + len(m.CausationID)
	for k, v := range m.Headers {
		n += len(k) + len(v)
	}
	return n
}
