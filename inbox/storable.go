package inbox

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
)

// The headers that a consumer adds to a message that it parks or dead-letters. Handlers do not see them.
const (
	// OriginalHeader holds values that some database cannot store, such as a subject of 300 bytes, a header with a NUL or a time
	// in the year 58000, as a JSON object of Go-quoted strings; times are seconds since 1970. The fields hold stand-ins, and
	// handlers see the original message.
	OriginalHeader = stored.OriginalHeader
	// PositionHeader holds the position in the source, as JSON: {"Epoch":"…","Partition":"…","Offset":42,"Mark":"…"}. Epoch is
	// postrider.Position.Incarnation.
	PositionHeader = "postrider-position"
	// DeadHeader says of a message that is queued in its held key why it is dead-lettered at its turn, as JSON: {"reason":"…","cause":"…"}.
	// After a redrive, it has no effect.
	DeadHeader = "postrider-dead"
)

// schemaVersion is the name of a schema version in the OriginalHeader.
const schemaVersion = "schema_version"

// headerPrefix precedes the quoted name of a header in the OriginalHeader.
const headerPrefix = "header "

// ownHeaders are read only by this package. If an incoming message has one, it is kept in the OriginalHeader.
var ownHeaders = []string{OriginalHeader, PositionHeader, DeadHeader}

// boundedText is a text field whose length some databases limit.
type boundedText struct {
	name  string
	text  *string
	limit int
}

func boundedTexts(m *postrider.Message) []boundedText {
	return []boundedText{
		{"id", &m.ID, postrider.MaxIDBytes},
		{"type", &m.Type, postrider.MaxTypeBytes},
		{"source", &m.Source, postrider.MaxSourceBytes},
		{"topic", &m.Topic, postrider.MaxTopicBytes},
		{"key", &m.Key, postrider.MaxKeyBytes},
		{"subject", &m.Subject, postrider.MaxSubjectBytes},
		{"tenant", &m.Tenant, postrider.MaxTenantBytes},
		{"content_type", &m.ContentType, postrider.MaxContentTypeBytes},
		{"correlation_id", &m.CorrelationID, postrider.MaxCorrelationIDBytes},
		{"causation_id", &m.CausationID, postrider.MaxCausationIDBytes},
	}
}

// boundedTime is a time that JSON, CloudEvents and some databases can hold only in the years 1 to 9999.
type boundedTime struct {
	name string
	time *time.Time
}

func boundedTimes(m *postrider.Message) []boundedTime {
	return []boundedTime{{"time", &m.Time}, {"deliver_at", &m.DeliverAt}}
}

// storable returns the message in a form that every database can store: unchanged if it follows the rules and has none of
// ownHeaders. Messages of other senders, such as CloudEvents, need not follow them. restored reverses it.
func storable(m *postrider.Message) *postrider.Message {
	if m.Validate(postrider.Limits{MaxPayload: math.MaxInt}) == nil && !slices.ContainsFunc(ownHeaders, func(name string) bool {
		_, has := m.Headers[name]
		return has
	}) {
		return m
	}
	out, original := *m, make(map[string]string)
	for _, f := range boundedTexts(&out) {
		if came := *f.text; !stored.Holdable(came, f.limit) {
			*f.text, original[f.name] = stored.StandIn(came, f.limit), strconv.QuoteToASCII(came)
		}
	}
	for _, f := range boundedTimes(&out) {
		if came := *f.time; !stored.NearestTime(came).Equal(came) {
			*f.time, original[f.name] = stored.NearestTime(came), fmt.Sprintf(`"%d.%09d"`, came.Unix(), came.Nanosecond())
		}
	}
	if v := m.SchemaVersion; v < math.MinInt32 || v > math.MaxInt32 {
		out.SchemaVersion, original[schemaVersion] = 0, strconv.Quote(strconv.Itoa(v))
	}
	out.Headers = maps.Clone(m.Headers)
	for name, value := range m.Headers {
		if !stored.Holdable(name, math.MaxInt) || !stored.Holdable(value, math.MaxInt) || slices.Contains(ownHeaders, name) {
			delete(out.Headers, name)
			original[headerPrefix+strconv.QuoteToASCII(name)] = strconv.QuoteToASCII(value)
		}
	}
	if len(original) == 0 {
		return m
	}
	text, err := json.Marshal(original)
	if err != nil {
		panic(err) // texts always marshal
	}
	if out.Headers == nil {
		out.Headers = make(map[string]string, 1)
	}
	out.Headers[OriginalHeader] = string(text)
	return &out
}

// restored returns a message as handlers see it.
func restored(m *postrider.Message) *postrider.Message {
	var original map[string]string
	if text := m.Headers[OriginalHeader]; text == "" || json.Unmarshal([]byte(text), &original) != nil {
		return m
	}
	out := *m
	out.Headers = maps.Clone(m.Headers)
	delete(out.Headers, OriginalHeader)
	for _, f := range boundedTexts(&out) {
		if came, err := strconv.Unquote(original[f.name]); err == nil {
			*f.text = came
		}
	}
	for _, f := range boundedTimes(&out) {
		if came, err := parseTime(original[f.name]); err == nil {
			*f.time = came
		}
	}
	if came, err := strconv.Unquote(original[schemaVersion]); err == nil {
		out.SchemaVersion, _ = strconv.Atoi(came) // 0, unless someone has edited the header
	}
	for quoted, value := range original {
		quoted, isHeader := strings.CutPrefix(quoted, headerPrefix)
		name, err := strconv.Unquote(quoted)
		if value, valueErr := strconv.Unquote(value); isHeader && err == nil && valueErr == nil {
			out.Headers[name] = value
		}
	}
	return &out
}

// parseTime reads quoted seconds and nanoseconds since 1970.
func parseTime(quoted string) (time.Time, error) {
	text, err := strconv.Unquote(quoted)
	if err != nil {
		return time.Time{}, err
	}
	whole, fraction, _ := strings.Cut(text, ".")
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	nanoseconds, err := strconv.ParseInt(fraction, 10, 64)
	return time.Unix(seconds, nanoseconds).UTC(), err
}

// standInFor returns the part of a message, which storable has returned, that every database takes. The database has compared
// ID and key with others before.
func standInFor(m *postrider.Message) *postrider.Message {
	out := *m
	out.Payload, out.Headers, out.DeliverAt, out.DeliverAfter = nil, nil, time.Time{}, 0
	for _, f := range boundedTexts(&out) {
		if f.name != "id" && f.name != "key" && strings.ContainsFunc(*f.text, notPrintableASCII) {
			*f.text = strings.Map(func(r rune) rune {
				if notPrintableASCII(r) {
					return '?'
				}
				return r
			}, stored.StandIn(*f.text, f.limit))
		}
	}
	return &out
}

func notPrintableASCII(r rune) bool { return r < ' ' || r > '~' }
