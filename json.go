package postrider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"
)

// messageJSON is the JSON form of a message: its fields, plus those that need more than a tag.
type messageJSON struct {
	*messageFields
	DeliverAfter  string          `json:"deliver_after,omitzero"`
	Payload       json.RawMessage `json:"payload,omitempty"`
	PayloadBase64 []byte          `json:"payload_base64,omitempty"`
}

// messageFields is Message without its methods.
type messageFields Message

// MarshalJSON encodes the message in a form that people can read and that UnmarshalJSON reads without loss. Empty fields
// are omitted; deliver_after is written like "1m30s". The payload depends on the content type:
//
//   - JSON, nested up to 1,000 deep: as it is, in "payload"
//   - text/*: as a string, in "payload"
//   - any other: base64, in "payload_base64"
//
// If JSON tools on the way could change the bytes of a JSON payload (white space, the characters that encoding/json
// escapes), "payload_base64" holds them as well.
func (m Message) MarshalJSON() ([]byte, error) {
	out := messageJSON{messageFields: (*messageFields)(&m)}
	if m.DeliverAfter != 0 {
		out.DeliverAfter = m.DeliverAfter.String()
	}
	switch text := utf8.Valid(m.Payload); {
	case len(m.Payload) == 0:
	case text && isJSONType(m.ContentType) && embeddable(m.Payload):
		out.Payload = m.Payload
		if !survivesJSON(m.Payload) {
			out.PayloadBase64 = m.Payload
		}
	case text && isTextType(m.ContentType):
		out.Payload = appendJSONString(nil, string(m.Payload))
	default:
		out.PayloadBase64 = m.Payload
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads the output of MarshalJSON. An unknown field is an error that names it. A payload that differs from
// payload_base64 is an error too.
func (m *Message) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil // as is the convention for UnmarshalJSON
	}
	var read Message
	in := messageJSON{messageFields: (*messageFields)(&read)}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return fmt.Errorf("read message: %w", err)
	}
	if in.DeliverAfter != "" {
		after, err := time.ParseDuration(in.DeliverAfter)
		if err != nil {
			return fmt.Errorf("read message: deliver_after: %w", err)
		}
		read.DeliverAfter = after
	}
	payload, err := in.payload()
	if err != nil {
		return fmt.Errorf("read message: %w", err)
	}
	read.Payload = payload
	*m = read
	return nil
}

// payload returns the bytes of payload and payload_base64.
func (in *messageJSON) payload() ([]byte, error) {
	exact := in.PayloadBase64
	if len(in.Payload) == 0 {
		return exact, nil
	}
	if !isJSONType(in.ContentType) {
		if exact != nil {
			return nil, fmt.Errorf("payload and payload_base64 are both given for content type %q: give one of them", in.ContentType)
		}
		var text string
		if err := json.Unmarshal(in.Payload, &text); err != nil || in.Payload[0] != '"' {
			return nil, fmt.Errorf("payload of content type %q must be a string, or base64 in payload_base64", in.ContentType)
		}
		return []byte(text), nil
	}
	if exact != nil {
		if !sameJSON(in.Payload, exact) {
			return nil, fmt.Errorf("payload and payload_base64 differ: give one of them")
		}
		return exact, nil
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, in.Payload); err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	return compact.Bytes(), nil
}

// isJSONType says whether a media type declares JSON: "*/json" or "*/*+json", ignoring parameters. An empty one counts as
// DefaultContentType.
func isJSONType(contentType string) bool {
	if contentType == "" || contentType == DefaultContentType {
		return true
	}
	mediaType := mediaTypeOf(contentType)
	return strings.HasSuffix(mediaType, "/json") || strings.HasSuffix(mediaType, "+json")
}

func isTextType(contentType string) bool { return strings.HasPrefix(mediaTypeOf(contentType), "text/") }

// mediaTypeOf returns a content type in lower case, without parameters.
func mediaTypeOf(contentType string) string {
	mediaType, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(mediaType))
}

// maxNesting is how deep arrays and objects of a payload may be nested for other JSON to contain it: encoding/json reads
// nothing that is deeper than 10,000, including what is around the payload.
const maxNesting = 1_000

// embeddable says whether a payload is JSON that other JSON can contain.
func embeddable(payload []byte) bool {
	depth, inString := 0, false
	for i := 0; i < len(payload); i++ {
		switch c := payload[i]; {
		case c == '"':
			inString = !inString
		case c == '\\':
			i++ // the escaped character; only strings have any
		case inString:
		case c == '{', c == '[':
			if depth++; depth > maxNesting {
				return false
			}
		case c == '}', c == ']':
			depth--
		}
	}
	return json.Valid(payload)
}

// survivesJSON says whether valid JSON keeps its bytes when encoding/json embeds it in other JSON: it has no white space
// outside strings and no character that is escaped for HTML or JavaScript.
func survivesJSON(payload []byte) bool {
	inString := false
	for i := 0; i < len(payload); i++ {
		switch c := payload[i]; c {
		case '"':
			inString = !inString
		case '\\':
			i++ // the escaped character; only strings have any
		case ' ', '\t', '\n', '\r':
			if !inString {
				return false
			}
		case '<', '>', '&':
			return false
		case 0xe2: // U+2028 and U+2029 begin so; other characters with this byte get base64 too, which does no harm
			return false
		}
	}
	return true
}

// sameJSON says whether two JSON texts encode the same value.
func sameJSON(a, b []byte) bool {
	var x, y any
	return unmarshalExact(a, &x) == nil && unmarshalExact(b, &y) == nil && reflect.DeepEqual(x, y)
}

// unmarshalExact keeps numbers as written.
func unmarshalExact(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(v)
}

// appendJSONString appends s as a JSON string. It escapes control characters and Unicode noncharacters; bytes that are
// not UTF-8 become U+FFFD.
func appendJSONString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	escape := func(u rune) {
		b = append(b, '\\', 'u', hex[u>>12&0xf], hex[u>>8&0xf], hex[u>>4&0xf], hex[u&0xf])
	}
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r > 0xffff && !isPlain(r):
			escape(0xd800 + (r-0x10000)>>10)
			escape(0xdc00 + (r-0x10000)&0x3ff)
		case !isPlain(r):
			escape(r)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

// isPlain says whether a CloudEvents attribute may contain the character: it is neither a control character nor a
// noncharacter.
func isPlain(r rune) bool {
	control := r < 0x20 || 0x7f <= r && r <= 0x9f
	noncharacter := 0xfdd0 <= r && r <= 0xfdef || r&0xfffe == 0xfffe
	return !control && !noncharacter
}
