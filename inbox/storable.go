package inbox

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider"
)

// OriginalHeader is the header in which a parked or dead-lettered message keeps values that some database cannot store,
// such as a subject of 300 bytes or a header with a NUL, as a JSON object of Go-quoted strings. The fields hold
// stand-ins. Handlers see the original message, without this header.
const OriginalHeader = "postrider-original"

// headerPrefix precedes the quoted name of a header in the OriginalHeader.
const headerPrefix = "header "

// ownHeaders are read only by this package. If an incoming message has one, it is kept in the OriginalHeader.
var ownHeaders = []string{OriginalHeader, PositionHeader}

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
		if came := *f.text; !holdable(came, f.limit) {
			*f.text, original[f.name] = standIn(came, f.limit), strconv.QuoteToASCII(came)
		}
	}
	out.Headers = maps.Clone(m.Headers)
	for name, value := range m.Headers {
		if !holdable(name, math.MaxInt) || !holdable(value, math.MaxInt) || slices.Contains(ownHeaders, name) {
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
	for quoted, value := range original {
		quoted, isHeader := strings.CutPrefix(quoted, headerPrefix)
		name, err := strconv.Unquote(quoted)
		if value, valueErr := strconv.Unquote(value); isHeader && err == nil && valueErr == nil {
			out.Headers[name] = value
		}
	}
	return &out
}

// storableText returns the text, or its stand-in if some database cannot store it.
func storableText(text string, limit int) string {
	if holdable(text, limit) {
		return text
	}
	return standIn(text, limit)
}

func holdable(text string, limit int) bool {
	return len(text) <= limit && utf8.ValidString(text) && strings.IndexByte(text, 0) < 0
}

// standIn is the beginning of a text, as far as it is readable, and a digest that distinguishes it from others.
func standIn(text string, limit int) string {
	sum := sha256.Sum256([]byte(text))
	digest := "~" + hex.EncodeToString(sum[:16])
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	return strings.ToValidUTF8(text[:min(len(text), limit-len(digest))], "") + digest
}
