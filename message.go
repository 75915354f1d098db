package postrider

import (
	"cmp"
	"time"
)

// Message is a message with its envelope. The attribute names are those of CloudEvents 1.0 wherever one exists.
//
// A publisher sets Type, Payload and any other field; Publish fills in the defaults named at each field and refuses a
// message that breaks one of the rules named there (see Validate). The fields under "Set on delivery" are for handlers
// and publishers to read; Publish ignores them.
//
// Every field and header is UTF-8 without NUL bytes, because that is what databases and brokers can store. Limits are in
// bytes, not in characters.
type Message struct {
	// ID identifies the message for deduplication, wherever it travels: 1 to 64 bytes. Default: a new UUIDv7 (NewID).
	ID string `json:"id,omitzero"`
	// Type says what happened or what is requested, e.g. "order.placed": 1 to 128 bytes. Required.
	Type string `json:"type,omitzero"`
	// Source names the service that published the message, as a URI-reference: 1 to 256 bytes. Default: the outbox's
	// Source.
	Source string `json:"source,omitzero"`
	// Topic is the stream the message belongs to: 1 to 249 bytes. Default: Type.
	Topic string `json:"topic,omitzero"`
	// Key is the unit of order, e.g. "order/42": at most 256 bytes. Messages with the same key are delivered in the
	// order in which they were published; the empty key promises no order.
	Key string `json:"key,omitzero"`
	// Subject identifies what the message is about, if Source and Key do not say it: at most 256 bytes.
	Subject string `json:"subject,omitzero"`
	// Tenant names the customer on whose behalf the message was published: at most 64 bytes. If it is empty, Publish
	// inside a handler copies it from the handled message.
	Tenant string `json:"tenant,omitzero"`
	// Time is when the event happened, in the years 1 to 9999. It plays no part in delivery. Default: now.
	Time time.Time `json:"time,omitzero"`
	// SchemaVersion is the version of the payload's schema, from 1 to 2,147,483,647; 0 means none.
	SchemaVersion int `json:"schema_version,omitzero"`
	// AggregateVersion is the version of the entity that the message describes, from 1; 0 means none.
	AggregateVersion int64 `json:"aggregate_version,omitzero"`
	// ContentType is the media type of Payload: at most 128 bytes. Default: "application/json".
	ContentType string `json:"content_type,omitzero"`
	// Headers travel with the message: at most 64 entries, 16 KiB of names and values together, no empty name. Names are
	// case-sensitive here, but not in every protocol: use lower-case names. Names of only a–z and 0–9 become CloudEvents
	// extension attributes that any CloudEvents receiver can read.
	Headers map[string]string `json:"headers,omitempty"`
	// CorrelationID groups all the messages of one business process: at most 128 bytes. Publish inside a handler fills it
	// with the handled message's CorrelationID, or with its ID if it has none.
	CorrelationID string `json:"correlation_id,omitzero"`
	// CausationID is the ID of the message whose handling published this one: at most 128 bytes. Publish inside a handler
	// fills it.
	CausationID string `json:"causation_id,omitzero"`
	// Payload is the content: by default at most 1 MiB (outbox.Config.MaxPayload). It may be empty.
	Payload []byte `json:"-"`
	// DeliverAt delays delivery until a point in time, DeliverAfter by a positive duration; both use the database's
	// clock. Set at most one of them. A delayed message leaves the order of its key: it is queued when it becomes due.
	DeliverAt    time.Time     `json:"deliver_at,omitzero"`
	DeliverAfter time.Duration `json:"deliver_after,omitzero"`

	// Set on delivery.

	// Sequence is the message's position in the log of its outbox. It rises within a key.
	Sequence int64 `json:"sequence,omitzero"`
	// Attempt counts the deliveries of this message by this relay, from 1. A snooze does not count.
	Attempt int `json:"attempt,omitzero"`
	// CreatedAt is when the message was written, on the database's clock.
	CreatedAt time.Time `json:"created_at,omitzero"`
}

// DefaultContentType is the ContentType of a message that does not set one.
const DefaultContentType = "application/json"

// FillDefaults sets ID, Source, Topic, Time and ContentType where they are empty. Publish calls it; call it yourself if
// you write messages another way. The default time is now in UTC, truncated to microseconds, the precision that databases
// keep.
func (m *Message) FillDefaults(source string, now time.Time) {
	if m.ID == "" {
		m.ID = NewID()
	}
	m.Source = cmp.Or(m.Source, source)
	m.Topic = cmp.Or(m.Topic, m.Type)
	m.ContentType = cmp.Or(m.ContentType, DefaultContentType)
	if m.Time.IsZero() {
		m.Time = now.UTC().Truncate(time.Microsecond)
	}
}

// Size is the size of the message in memory and on the wire, in bytes: payload, headers and text attributes.
func (m *Message) Size() int {
	n := len(m.Payload) + len(m.ID) + len(m.Type) + len(m.Source) + len(m.Topic) + len(m.Key) + len(m.Subject) +
		len(m.Tenant) + len(m.ContentType) + len(m.CorrelationID) + len(m.CausationID)
	for k, v := range m.Headers {
		n += len(k) + len(v)
	}
	return n
}
