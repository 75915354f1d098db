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

// OriginalHeader is the header in which a message that was put aside or died keeps what some database could not hold, such as
// a subject of 300 bytes or a header with a NUL, as a JSON object of texts in Go's quotes. For texts there are stand-ins in
// their places. Handlers see the message as it came, without this header.
const OriginalHeader = "postrider-original"

// headerPrefix stands before the name of a header in the OriginalHeader, which is quoted too.
const headerPrefix = "header "

// ownHeaders are those that only this package reads. A message that comes with one has it in its OriginalHeader.
var ownHeaders = []string{OriginalHeader, PositionHeader}

// boundedText is a text of a message that some databases hold only up to a limit.
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

// storable is a message as a consumer works with it: every database can hold it. That is the message itself if it keeps to
// the rules and has no header of ours; those of others, such as CloudEvents, need not. As it came it is what restored returns.
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

// restored is a message as handlers see it.
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

// storableText is a text, or its stand-in if some database could not hold it.
func storableText(text string, limit int) string {
	if holdable(text, limit) {
		return text
	}
	return standIn(text, limit)
}

func holdable(text string, limit int) bool {
	return len(text) <= limit && utf8.ValidString(text) && strings.IndexByte(text, 0) < 0
}

// standIn is what is legible of a text's beginning, and a digest that tells it from others.
func standIn(text string, limit int) string {
	sum := sha256.Sum256([]byte(text))
	digest := "~" + hex.EncodeToString(sum[:16])
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	return strings.ToValidUTF8(text[:min(len(text), limit-len(digest))], "") + digest
}
