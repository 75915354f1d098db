package postrider

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
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

func namesBehind(prefix string) *attributeNames {
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

// attributeReader collects attributes, in any order, into a message. It goes on after an attribute that it cannot read.
type attributeReader struct {
	m      *Message
	seen   map[string]bool
	others map[string]string // from otherHeaders
	// contentType is the value of otherContentType.
	contentType string
	// unread are the attributes that cannot be read, errs says why.
	unread map[string]bool
	errs   []error
}

func newAttributeReader() *attributeReader {
	return &attributeReader{m: &Message{}, seen: make(map[string]bool, 16)}
}

// fail records that an attribute cannot be read.
func (r *attributeReader) fail(name string, err error) {
	if r.unread == nil {
		r.unread = make(map[string]bool)
	}
	r.unread[name] = true
	r.errs = append(r.errs, err)
}

// set takes one attribute in its canonical string form.
func (r *attributeReader) set(name, value string) {
	if err := r.read(name, value); err != nil {
		r.fail(name, err)
	}
}

func (r *attributeReader) read(name, value string) error {
	if !isAttributeName(name) || name == "data" {
		return fmt.Errorf("attribute name %q: CloudEvents allows a–z and 0–9, except \"data\"", name)
	}
	if r.seen[name] {
		return fmt.Errorf("attribute %s is there twice", name)
	}
	r.seen[name] = true
	if !utf8.ValidString(value) {
		return fmt.Errorf("attribute %s is not UTF-8", name)
	}
	if field := textField(r.m, name); field != nil {
		*field = value
		return nil
	}
	switch name {
	case "specversion":
		if value != specVersion {
			return fmt.Errorf("specversion is %q, only %s is understood", value, specVersion)
		}
	case "time":
		t, err := parseTime(value)
		if err != nil {
			return fmt.Errorf("attribute time: %w", err)
		}
		r.m.Time = t
	case otherContentType:
		r.contentType = value
	case otherHeaders:
		if err := json.Unmarshal([]byte(value), &r.others); err != nil {
			return fmt.Errorf("attribute %s: %w", otherHeaders, err)
		}
	default:
		if !r.setNumber(name, value) {
			r.header(name, value)
		}
	}
	return nil
}

// textField returns the field for an attribute that accepts any text, or nil.
func textField(m *Message, name string) *string {
	switch name {
	case "id":
		return &m.ID
	case "source":
		return &m.Source
	case "type":
		return &m.Type
	case "subject":
		return &m.Subject
	case "datacontenttype":
		return &m.ContentType
	case "partitionkey":
		return &m.Key
	case "correlationid":
		return &m.CorrelationID
	case "causationid":
		return &m.CausationID
	case "topic":
		return &m.Topic
	case "tenant":
		return &m.Tenant
	}
	return nil
}

// setNumber sets the extension attributes that are not text. It returns false for other attributes and for values that
// attributes would not have written.
func (r *attributeReader) setNumber(name, value string) bool {
	m := r.m
	switch name {
	case "recordedtime":
		t, err := parseTime(value)
		m.CreatedAt = t
		return err == nil && !t.IsZero()
	case "schemaversion", "aggregateversion", "sequence":
	default:
		return false
	}
	n, err := strconv.ParseInt(value, 10, 64)
	switch {
	case err != nil || n < 1:
		return false
	case name == "sequence" && string(appendSequence(nil, n)) == value:
		m.Sequence = n
	case name == "aggregateversion" && strconv.FormatInt(n, 10) == value:
		m.AggregateVersion = n
	case name == "schemaversion" && strconv.FormatInt(n, 10) == value && n <= math.MaxInt32:
		m.SchemaVersion = int(n)
	default:
		return false
	}
	return true
}

// parseTime reads RFC 3339. The year must still have four digits in UTC, so that the time can be formatted again.
func parseTime(value string) (time.Time, error) {
	var t time.Time
	if err := t.UnmarshalText([]byte(strings.ToUpper(value))); err != nil {
		return time.Time{}, err
	}
	t = t.UTC()
	if t.Year() < 0 || t.Year() > 9999 {
		return time.Time{}, errors.New("the year in UTC is not from 0 to 9999")
	}
	return t, nil
}

func (r *attributeReader) header(name, value string) {
	if r.m.Headers == nil {
		r.m.Headers = make(map[string]string)
	}
	r.m.Headers[name] = value
}

// message returns the message after all attributes are set. With an error, it holds those that could be read.
func (r *attributeReader) message() (*Message, error) {
	for name, value := range r.others {
		if _, ok := r.m.Headers[name]; !ok {
			r.header(name, value)
		}
	}
	var missing []string
	for _, a := range []struct {
		name  string
		there bool
	}{
		{"specversion", r.seen["specversion"]}, {"id", r.m.ID != ""}, {"source", r.m.Source != ""}, {"type", r.m.Type != ""},
	} {
		if !a.there {
			missing = append(missing, a.name)
		}
	}
	if missing != nil {
		r.errs = append(r.errs, fmt.Errorf("required attributes are missing: %s", strings.Join(missing, ", ")))
	}
	r.m.Topic = cmp.Or(r.m.Topic, r.m.Type)
	r.m.ContentType = cmp.Or(r.contentType, r.m.ContentType)
	return r.m, errors.Join(r.errs...)
}
