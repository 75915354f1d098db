package postrider

import (
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// CloudEventsBinary is CloudEvents' binary mode: the payload is the protocol's payload, the attributes are its headers.
// The zero value is for HTTP and NATS; for Kafka it is {Prefix: "ce_", UTF8: true}.
//
// Binary mode and structured mode (EncodeCloudEvent) map a message to a CloudEvent as follows:
//
//	Message            attribute          kind
//	ID                 id                 core
//	Source             source             core; "unknown" when empty
//	Type               type               core
//	Subject            subject            core
//	Time               time               core, in UTC
//	ContentType        datacontenttype    core; the header content-type, without prefix, in binary mode
//	Key                partitionkey       Partitioning extension
//	CorrelationID      correlationid      Correlation extension
//	CausationID        causationid        Correlation extension
//	Sequence           sequence           Sequence extension: 19 digits, so that text sorts as the numbers do
//	CreatedAt          recordedtime       Recorded Time extension, in UTC
//	Topic              topic              Postrider's; omitted when it equals Type
//	Tenant             tenant             Postrider's
//	SchemaVersion      schemaversion      Postrider's, an integer
//	AggregateVersion   aggregateversion   Postrider's, decimal digits as text (CloudEvents integers end at 2³¹)
//	Headers            one each           if an attribute may have the name and value, e.g. traceparent
//	Headers, others    postriderheaders   Postrider's, a JSON object of strings
//
// Some content types cannot be the content-type header of binary mode, e.g. application/cloudevents+json, which has
// another meaning there. They become the attribute postridercontenttype (Postrider's), and the header is application/json
// or application/octet-stream. Empty fields have no attribute. DeliverAt, DeliverAfter and Attempt are not sent: they
// matter only between outbox and relay. Nothing else is lost: decoding returns what was encoded.
//
// In events from other senders, every attribute that is not in the table, including dataschema, becomes a header. So does
// an extension attribute whose value does not fit the field, because the sender gave the name another meaning.
type CloudEventsBinary struct {
	// Prefix precedes the attribute names. Default: "ce-".
	Prefix string
	// UTF8 says that the protocol's header values hold any UTF-8 text. Otherwise values are percent-encoded, as in the
	// HTTP binding: space, double quote, percent sign and everything but printable ASCII.
	UTF8 bool
}

// specVersion is the supported version of CloudEvents.
const specVersion = "1.0"

// unknownSource replaces an empty Source, which CloudEvents does not allow.
const unknownSource = "unknown"

// otherHeaders is the attribute for headers that cannot be attributes.
const otherHeaders = "postriderheaders"

// otherContentType is the attribute for a content type that cannot be the content-type header of binary mode.
const otherContentType = "postridercontenttype"

// attributes yields names and values of all attributes except datacontenttype.
func attributes(m *Message, n *attributeNames) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		source := m.Source
		if source == "" {
			source = unknownSource
		}
		t := writeAttributes(m)
		_ = yield(n.specVersion, specVersion) &&
			yieldText(yield, n.id, m.ID) &&
			yieldText(yield, n.source, source) &&
			yieldText(yield, n.typ, m.Type) &&
			yieldText(yield, n.subject, m.Subject) &&
			yieldText(yield, n.time, t.time) &&
			yieldText(yield, n.partitionKey, m.Key) &&
			(m.Topic == m.Type || yieldText(yield, n.topic, m.Topic)) &&
			yieldText(yield, n.tenant, m.Tenant) &&
			yieldText(yield, n.correlationID, m.CorrelationID) &&
			yieldText(yield, n.causationID, m.CausationID) &&
			yieldText(yield, n.schemaVersion, t.schemaVersion) &&
			yieldText(yield, n.aggregateVersion, t.aggregateVersion) &&
			yieldText(yield, n.sequence, t.sequence) &&
			yieldText(yield, n.recordedTime, t.recordedTime) &&
			yieldHeaders(yield, n, m.Headers)
	}
}

func yieldText(yield func(string, string) bool, name, value string) bool {
	return value == "" || yield(name, value)
}

// attributeNames are the attribute names with a prefix. Those for the usual prefixes are built once, not per message.
type attributeNames struct {
	prefix string

	specVersion, id, source, typ, subject, time, partitionKey, topic, tenant, correlationID, causationID, schemaVersion,
	aggregateVersion, sequence, recordedTime, otherHeaders, otherContentType string
}

func prefixedNames(prefix string) *attributeNames {
	return &attributeNames{
		prefix:           prefix,
		specVersion:      prefix + "specversion",
		id:               prefix + "id",
		source:           prefix + "source",
		typ:              prefix + "type",
		subject:          prefix + "subject",
		time:             prefix + "time",
		partitionKey:     prefix + "partitionkey",
		topic:            prefix + "topic",
		tenant:           prefix + "tenant",
		correlationID:    prefix + "correlationid",
		causationID:      prefix + "causationid",
		schemaVersion:    prefix + "schemaversion",
		aggregateVersion: prefix + "aggregateversion",
		sequence:         prefix + "sequence",
		recordedTime:     prefix + "recordedtime",
		otherHeaders:     prefix + otherHeaders,
		otherContentType: prefix + otherContentType,
	}
}

// writtenAttributes are the attributes that are not text in a message; empty ones are omitted.
type writtenAttributes struct{ time, schemaVersion, aggregateVersion, sequence, recordedTime string }

// writeAttributes formats them all in one allocation.
func writeAttributes(m *Message) (t writtenAttributes) {
	var room [160]byte
	b := appendTime(room[:0], m.Time)
	time := len(b)
	b = appendTime(b, m.CreatedAt)
	recordedTime := len(b)
	if m.Sequence > 0 {
		b = appendSequence(b, m.Sequence)
	}
	sequence := len(b)
	if m.AggregateVersion != 0 {
		b = strconv.AppendInt(b, m.AggregateVersion, 10)
	}
	aggregateVersion := len(b)
	if m.SchemaVersion != 0 {
		b = strconv.AppendInt(b, int64(m.SchemaVersion), 10)
	}
	text := string(b)
	return writtenAttributes{
		time:             text[:time],
		recordedTime:     text[time:recordedTime],
		sequence:         text[recordedTime:sequence],
		aggregateVersion: text[sequence:aggregateVersion],
		schemaVersion:    text[aggregateVersion:],
	}
}

func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return b
	}
	return t.UTC().AppendFormat(b, time.RFC3339Nano)
}

// yieldHeaders yields the headers sorted by name.
func yieldHeaders(yield func(string, string) bool, n *attributeNames, headers map[string]string) bool {
	if len(headers) == 0 {
		return true
	}
	var others []byte
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		value := headers[name]
		if isAttributeName(name) && !isReserved(name) && isAttributeValue(value) {
			if !yield(n.prefix+name, value) {
				return false
			}
			continue
		}
		others = append(others, ',')
		others = append(appendJSONString(others, name), ':')
		others = appendJSONString(others, value)
	}
	if others == nil {
		return true
	}
	others[0] = '{'
	return yield(n.otherHeaders, string(append(others, '}')))
}

// isAttributeName: CloudEvents allows a to z and 0 to 9.
func isAttributeName(name string) bool {
	for i := 0; i < len(name); i++ {
		if c := name[i]; !isDigit(c) && (c < 'a' || c > 'z') {
			return false
		}
	}
	return name != ""
}

// isReserved: attribute names that are not headers.
func isReserved(name string) bool {
	switch name {
	case "id", "source", "type", "subject", "time", "datacontenttype", "partitionkey", "correlationid", "causationid",
		"sequence", "recordedtime", "topic", "tenant", "schemaversion", "aggregateversion", otherHeaders,
		otherContentType, "specversion", "data":
		return true
	}
	return false
}

// isAttributeValue: text without control characters and noncharacters. Empty values are excluded because a protocol could
// drop them.
func isAttributeValue(value string) bool {
	for _, r := range value {
		if !isPlain(r) {
			return false
		}
	}
	return value != "" && utf8.ValidString(value)
}

// appendSequence pads a positive number to the 19 digits of the largest int64.
func appendSequence(b []byte, n int64) []byte {
	const zeros = "0000000000000000000"
	b = append(b, zeros...)
	for i := len(b) - 1; n > 0; i-- {
		b[i] = '0' + byte(n%10)
		n /= 10
	}
	return b
}
