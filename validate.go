package postrider

import (
	"fmt"
	"maps"
	"math"
	"mime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of a message, in bytes unless they say otherwise.
const (
	MaxIDBytes            = 64
	MaxTypeBytes          = 128
	MaxSourceBytes        = 256
	MaxTopicBytes         = 249
	MaxKeyBytes           = 256
	MaxSubjectBytes       = 256
	MaxTenantBytes        = 64
	MaxContentTypeBytes   = 128
	MaxCorrelationIDBytes = 128
	MaxCausationIDBytes   = 128
	MaxHeaders            = 64       // entries
	MaxHeaderBytes        = 16 << 10 // names and values of all headers together
	DefaultMaxPayload     = 1 << 20  // unless Limits say otherwise
)

// Limits are the message limits that can be configured.
type Limits struct {
	// MaxPayload is the largest payload in bytes; 0 means DefaultMaxPayload.
	MaxPayload int
}

// Validate checks the message against the rules named at its fields, assuming that defaults are filled in, and reports
// all problems at once, as a *ValidationError.
func (m *Message) Validate(l Limits) error {
	var f faults
	f.message(m, l)
	return f.err(1)
}

// ValidateSource checks only a Source; the error is a *ValidationError.
func ValidateSource(source string) error {
	var f faults
	f.source(source)
	return f.err(0)
}

// ValidationError lists every problem of a message, a batch of messages or a definition.
type ValidationError struct {
	// Faults are ordered by message, then by field.
	Faults []Fault
	// Batch is the number of messages that were checked together; 0 for a definition or a single Source.
	Batch int
}

// Fault is one problem.
type Fault struct {
	// Index is the index of the message in its batch, from 0.
	Index int
	// Field is the field's name in the JSON form of a message: "key", `headers["trace"]`. It is empty for a nil message.
	Field string
	// Problem says what is wrong with it, e.g. "is 300 bytes long".
	Problem string
	// Limit is the limit that was exceeded; 0 for any other problem.
	Limit int
}

// maxFaultsInText is how many faults Error spells out.
const maxFaultsInText = 20

// Error has one line per fault, up to 20, and the number of further ones.
func (e *ValidationError) Error() string {
	var b strings.Builder
	for i, f := range e.Faults {
		if i == maxFaultsInText {
			fmt.Fprintf(&b, "\n… and %d more faults", len(e.Faults)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		switch {
		case e.Batch == 1:
			b.WriteString("message: ")
		case e.Batch > 1:
			fmt.Fprintf(&b, "message %d: ", f.Index)
		}
		b.WriteString(f.String())
	}
	return b.String()
}

// String is the field, problem and limit.
func (f Fault) String() string {
	text := strings.TrimSpace(f.Field + " " + f.Problem)
	if f.Limit != 0 {
		text += fmt.Sprintf(", the limit is %d", f.Limit)
	}
	return text
}

// faults collects problems during a check.
type faults struct{ list []Fault }

func (f *faults) add(field, problem string, limit int) {
	f.list = append(f.list, Fault{Field: field, Problem: problem, Limit: limit})
}

func (f *faults) err(batch int) error {
	if len(f.list) == 0 {
		return nil
	}
	return &ValidationError{Faults: f.list, Batch: batch}
}

func (f *faults) message(m *Message, l Limits) {
	if m == nil {
		f.add("", "is nil", 0)
		return
	}
	f.text("id", m.ID, 1, MaxIDBytes)
	f.text("type", m.Type, 1, MaxTypeBytes)
	f.source(m.Source)
	f.text("topic", m.Topic, 1, MaxTopicBytes)
	f.text("key", m.Key, 0, MaxKeyBytes)
	f.text("subject", m.Subject, 0, MaxSubjectBytes)
	f.text("tenant", m.Tenant, 0, MaxTenantBytes)
	f.time("time", m.Time)
	if m.SchemaVersion < 0 || m.SchemaVersion > math.MaxInt32 {
		f.add("schema_version", fmt.Sprintf("is %d, it counts from 1", m.SchemaVersion), math.MaxInt32)
	}
	if m.AggregateVersion < 0 {
		f.add("aggregate_version", fmt.Sprintf("is %d, it counts from 1", m.AggregateVersion), 0)
	}
	f.contentType(m.ContentType)
	f.headers(m.Headers)
	f.text("correlation_id", m.CorrelationID, 0, MaxCorrelationIDBytes)
	f.text("causation_id", m.CausationID, 0, MaxCausationIDBytes)
	limit := l.MaxPayload
	if limit == 0 {
		limit = DefaultMaxPayload
	}
	if len(m.Payload) > limit {
		f.add("payload", fmt.Sprintf("is %d bytes long", len(m.Payload)), limit)
	}
	f.delivery(m)
}

// text checks length and encoding of a text field.
func (f *faults) text(field, value string, atLeast, limit int) {
	if len(value) < atLeast {
		f.add(field, "is required", 0)
	}
	if len(value) > limit {
		f.add(field, fmt.Sprintf("is %d bytes long", len(value)), limit)
	}
	f.encoding(field, value)
}

// encoding checks that every database and broker can store a text.
func (f *faults) encoding(field, value string) {
	if !utf8.ValidString(value) {
		f.add(field, "is not UTF-8", 0)
	}
	if strings.IndexByte(value, 0) >= 0 {
		f.add(field, "has a NUL byte", 0)
	}
}

func (f *faults) source(s string) {
	f.text("source", s, 1, MaxSourceBytes)
	if i := notURIReference(s); i >= 0 {
		f.add("source", fmt.Sprintf("is not a URI-reference (RFC 3986) from byte %d on", i), 0)
	}
}

func (f *faults) contentType(s string) {
	if s == DefaultContentType {
		return
	}
	f.text("content_type", s, 1, MaxContentTypeBytes)
	if mediaType, _, err := mime.ParseMediaType(s); s != "" && (err != nil || !strings.Contains(mediaType, "/")) {
		f.add("content_type", "is not a media type such as application/json", 0)
	}
}

func (f *faults) headers(headers map[string]string) {
	if len(headers) == 0 {
		return
	}
	entries, bytes := len(headers), 0
	for name, value := range headers {
		if name == HeaderReplay || name == HeaderReplayFor {
			entries--
			continue
		}
		bytes += len(name) + len(value)
	}
	if entries > MaxHeaders {
		f.add("headers", fmt.Sprintf("has %d entries", entries), MaxHeaders)
	}
	if bytes > MaxHeaderBytes {
		f.add("headers", fmt.Sprintf("has %d bytes of names and values", bytes), MaxHeaderBytes)
	}
	for name, value := range headers {
		if name == "" || !clean(name) || !clean(value) {
			f.badHeaders(headers)
			return
		}
	}
}

// badHeaders reports the invalid headers, sorted by name. It is separate from headers so that only invalid messages pay
// for sorting.
func (f *faults) badHeaders(headers map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if name == "" {
			f.add("headers", "has an empty name", 0)
		}
		f.encoding(fmt.Sprintf("headers: name %q", name), name)
		f.encoding(fmt.Sprintf("headers[%q]", name), headers[name])
	}
}

func clean(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

func (f *faults) delivery(m *Message) {
	if !m.DeliverAt.IsZero() && m.DeliverAfter != 0 {
		f.add("deliver_at", "and deliver_after are both set: give at most one of them", 0)
	}
	if m.DeliverAfter < 0 {
		f.add("deliver_after", fmt.Sprintf("is %s, it must be positive", m.DeliverAfter), 0)
	}
	f.time("deliver_at", m.DeliverAt)
}

// time checks that a time has a four-digit year, which RFC 3339, and so JSON and CloudEvents, requires.
func (f *faults) time(field string, t time.Time) {
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		f.add(field, fmt.Sprintf("is in the year %d, it must be from 1 to 9999", y), 0)
	}
}
