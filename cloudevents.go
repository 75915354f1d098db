package postrider

import (
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
// This is how a message becomes a CloudEvent, in this mode and in the structured one (EncodeCloudEvent):
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
//	Topic              topic              ours; left out when it equals Type
//	Tenant             tenant             ours
//	SchemaVersion      schemaversion      ours, an integer
//	AggregateVersion   aggregateversion   ours, decimal digits as text (integers of CloudEvents end at 2³¹)
//	Headers            one each           those whose name and value an attribute may have, traceparent among them
//	Headers, others    postriderheaders   ours, a JSON object of strings
//
// Empty fields have no attribute. DeliverAt, DeliverAfter and Attempt do not travel: they are between outbox and relay.
// Nothing else is lost: what is decoded equals what was encoded.
//
// In what others send, every attribute that is not in the table, dataschema included, becomes a header, and so does an
// extension attribute whose value the field cannot hold, because somebody else gave the name another meaning.
type CloudEventsBinary struct {
	// Prefix stands before the attribute names. Default: "ce-".
	Prefix string
	// UTF8 says that the protocol's header values hold any UTF-8 text. Otherwise values are percent-encoded, as in the HTTP
	// binding: space, double quote, percent sign and everything but printable ASCII.
	UTF8 bool
}

// specVersion is the version of CloudEvents that is spoken here.
const specVersion = "1.0"

// unknownSource stands for an empty Source, which CloudEvents does not allow.
const unknownSource = "unknown"

// otherHeaders is the attribute for headers that cannot be attributes.
const otherHeaders = "postriderheaders"

// attributes yields names and values of all attributes but datacontenttype.
func attributes(m *Message) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		source := m.Source
		if source == "" {
			source = unknownSource
		}
		_ = yield("specversion", specVersion) &&
			yieldText(yield, "id", m.ID) &&
			yieldText(yield, "source", source) &&
			yieldText(yield, "type", m.Type) &&
			yieldText(yield, "subject", m.Subject) &&
			yieldTime(yield, "time", m.Time) &&
			yieldText(yield, "partitionkey", m.Key) &&
			(m.Topic == m.Type || yieldText(yield, "topic", m.Topic)) &&
			yieldText(yield, "tenant", m.Tenant) &&
			yieldText(yield, "correlationid", m.CorrelationID) &&
			yieldText(yield, "causationid", m.CausationID) &&
			(m.SchemaVersion == 0 || yield("schemaversion", strconv.Itoa(m.SchemaVersion))) &&
			(m.AggregateVersion == 0 || yield("aggregateversion", strconv.FormatInt(m.AggregateVersion, 10))) &&
			(m.Sequence <= 0 || yield("sequence", formatSequence(m.Sequence))) &&
			yieldTime(yield, "recordedtime", m.CreatedAt) &&
			yieldHeaders(yield, m.Headers)
	}
}

func yieldText(yield func(string, string) bool, name, value string) bool {
	return value == "" || yield(name, value)
}

func yieldTime(yield func(string, string) bool, name string, t time.Time) bool {
	return t.IsZero() || yield(name, t.UTC().Format(time.RFC3339Nano))
}

// yieldHeaders goes through the headers in the order of their names.
func yieldHeaders(yield func(string, string) bool, headers map[string]string) bool {
	if len(headers) == 0 {
		return true
	}
	var others []byte
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		value := headers[name]
		if isAttributeName(name) && !isReserved(name) && isAttributeValue(value) {
			if !yield(name, value) {
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
	return yield(otherHeaders, string(append(others, '}')))
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

// isReserved: names of attributes that are not headers.
func isReserved(name string) bool {
	switch name {
	case "id", "source", "type", "subject", "time", "datacontenttype", "partitionkey", "correlationid", "causationid",
		"sequence", "recordedtime", "topic", "tenant", "schemaversion", "aggregateversion", otherHeaders,
		"specversion", "data":
		return true
	}
	return false
}

// isAttributeValue: text without control characters and noncharacters. An empty one could get lost on the way.
func isAttributeValue(value string) bool {
	for _, r := range value {
		if !isPlain(r) {
			return false
		}
	}
	return value != "" && utf8.ValidString(value)
}

// formatSequence pads a positive number to the 19 digits of the largest int64.
func formatSequence(n int64) string {
	digits := strconv.FormatInt(n, 10)
	return "0000000000000000000"[len(digits):] + digits
}

// attributeReader gathers attributes into a message, in any order.
type attributeReader struct {
	m      *Message
	seen   map[string]bool
	others map[string]string // of otherHeaders
}

func newAttributeReader() *attributeReader {
	return &attributeReader{m: &Message{}, seen: make(map[string]bool, 16)}
}

// set takes one attribute in its canonical string form.
func (r *attributeReader) set(name, value string) error {
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

// textField returns the field for an attribute that any text will do for, or nil.
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

// setNumber takes those of our extension attributes that are not text. It says false for other attributes and for values
// that are not of the form that attributes writes.
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
	case name == "sequence" && formatSequence(n) == value:
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

// parseTime reads RFC 3339. The year must still have four digits in UTC, so that the time can be written again.
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

// message returns what was read, once everything was.
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
		return nil, fmt.Errorf("required attributes are missing: %s", strings.Join(missing, ", "))
	}
	if r.m.Topic == "" {
		r.m.Topic = r.m.Type
	}
	return r.m, nil
}
