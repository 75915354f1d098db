package postrider

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"strings"
)

// contentTypeHeader is the only attribute without a prefix.
const contentTypeHeader = "content-type"

// cloudEventsTypes is the prefix of the media types of structured mode.
const cloudEventsTypes = "application/cloudevents"

// traceHeaders are those of W3C Trace Context. Tools that know nothing of CloudEvents expect them without a prefix.
var traceHeaders = [...]string{"traceparent", "tracestate"}

// Attribute names with the prefixes of the bindings for HTTP and NATS, Kafka, and AMQP.
var httpNames, kafkaNames, amqpNames = prefixedNames("ce-"), prefixedNames("ce_"), prefixedNames("cloudEvents_")

func (c CloudEventsBinary) names() *attributeNames {
	switch c.Prefix {
	case "", httpNames.prefix:
		return httpNames
	case kafkaNames.prefix:
		return kafkaNames
	case amqpNames.prefix:
		return amqpNames
	}
	return prefixedNames(c.Prefix)
}

// Headers yields names and values of the protocol headers for a message; send its Payload unchanged as the body. The W3C
// trace headers are included twice, with and without the prefix.
func (c CloudEventsBinary) Headers(m *Message) iter.Seq2[string, string] {
	names := c.names()
	return func(yield func(string, string) bool) {
		contentType := m.ContentType
		if !isHeaderContentType(contentType) {
			contentType = "application/octet-stream"
			if isJSONType(m.ContentType) {
				contentType = DefaultContentType
			}
			value := m.ContentType
			if !c.UTF8 {
				value = percentEncode(value)
			}
			if !yield(names.otherContentType, value) {
				return
			}
		}
		if contentType != "" && !yield(contentTypeHeader, contentType) {
			return
		}
		for name, value := range attributes(m, names) {
			if !c.UTF8 {
				value = percentEncode(value)
			}
			if !yield(name, value) {
				return
			}
		}
		if len(m.Headers) == 0 {
			return
		}
		for _, name := range traceHeaders {
			value := m.Headers[name]
			plain := value != "" && isPrintable(value) && strings.TrimSpace(value) == value
			if plain && !yield(name, value) {
				return
			}
		}
	}
}

// Decode reads a message from protocol headers and payload, which it retains. Header names are case-insensitive, since
// protocols change their case. Headers without the prefix are ignored, except content-type and the W3C trace headers,
// which count if the event itself has none. If content-type says that the payload is a whole CloudEvent in JSON, it is
// read as DecodeCloudEvent does. The result follows the rules of CloudEvents, not necessarily all those of Validate.
//
// With an error, Decode returns what could be read: all valid attributes, the payload, and as Headers, under their own
// names, also the headers of the protocol that are not such attributes, with the values of a repeated header separated
// by commas. It then reads headers twice.
func (c CloudEventsBinary) Decode(headers iter.Seq2[string, string], payload []byte) (*Message, error) {
	r := newAttributeReader()
	m, err := c.decode(r, headers, payload)
	if err != nil {
		c.keepUnread(m, r, headers)
		m.Payload = payload
		return m, fmt.Errorf("decode CloudEvent: %w", err)
	}
	return m, nil
}

func (c CloudEventsBinary) prefix() string {
	return strings.ToLower(cmp.Or(c.Prefix, httpNames.prefix))
}

func (c CloudEventsBinary) decode(r *attributeReader, headers iter.Seq2[string, string], payload []byte) (*Message, error) {
	prefix := c.prefix()
	var traces [len(traceHeaders)]string
	for name, value := range headers {
		name = strings.ToLower(name)
		attribute, ok := strings.CutPrefix(name, prefix)
		switch {
		case name == contentTypeHeader:
			if mediaType := mediaTypeOf(value); mediaType == CloudEventsJSON {
				r.seen, r.unread = nameSet{}, nil // the event is in the payload
				r.seen.add("datacontenttype")
				return decodeStructured(newAttributeReader(), value, payload)
			} else if strings.HasPrefix(mediaType, cloudEventsTypes) {
				r.errs = append(r.errs, fmt.Errorf("content type %q: of the structured formats only %s is understood", value, CloudEventsJSON))
			}
			r.set("datacontenttype", value)
		case ok && attribute == "datacontenttype":
			r.fail(attribute, errors.New("datacontenttype is in the content-type header in binary mode"))
		case ok:
			if !c.UTF8 {
				value = percentDecode(unquote(value))
			}
			r.set(attribute, value)
		default:
			for i, trace := range traceHeaders {
				if name == trace {
					traces[i] = value
				}
			}
		}
	}
	m, err := r.message()
	for i, value := range traces {
		if _, ok := m.Headers[traceHeaders[i]]; !ok && isAttributeValue(value) {
			r.header(traceHeaders[i], value)
		}
	}
	m.Payload = payload
	return m, err
}

// keepUnread adds the headers of the protocol that are not in the message.
func (c CloudEventsBinary) keepUnread(m *Message, r *attributeReader, headers iter.Seq2[string, string]) {
	prefix, kept := c.prefix(), make(map[string]string)
	for name, value := range headers {
		attribute, ok := strings.CutPrefix(strings.ToLower(name), prefix)
		if !ok && strings.EqualFold(name, contentTypeHeader) {
			attribute, ok = "datacontenttype", true
		}
		if ok && r.seen.has(attribute) && !r.unread[attribute] {
			continue
		}
		if before, repeated := kept[name]; repeated {
			value = before + ", " + value
		}
		kept[name] = value
	}
	if m.Headers == nil && len(kept) > 0 {
		m.Headers = make(map[string]string, len(kept))
	}
	for name, value := range kept {
		if read, has := m.Headers[name]; has && read != value {
			value = read + ", " + value
		}
		m.Headers[name] = value
	}
}

// isHeaderContentType: valid as a header, and does not make receivers read the payload as a whole CloudEvent.
func isHeaderContentType(contentType string) bool {
	return contentType == DefaultContentType || isPrintable(contentType) && strings.TrimSpace(contentType) == contentType &&
		!strings.HasPrefix(mediaTypeOf(contentType), cloudEventsTypes)
}

// isPrintable: ASCII that every protocol carries unchanged.
func isPrintable(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// headerBytes are the bytes that the HTTP binding leaves unencoded in a header value.
var headerBytes = func() (is [256]bool) {
	for c := byte(0x21); c <= 0x7e; c++ {
		is[c] = c != '"' && c != '%'
	}
	return is
}()

func percentEncode(s string) string {
	i := 0
	for i < len(s) && headerBytes[s[i]] {
		i++
	}
	if i == len(s) {
		return s
	}
	const hex = "0123456789ABCDEF"
	b := append(make([]byte, 0, len(s)+16), s[:i]...)
	for ; i < len(s); i++ {
		if c := s[i]; headerBytes[c] {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&0xf])
		}
	}
	return string(b)
}

// percentDecode keeps a percent sign that is not followed by two hex digits: some senders do not encode.
func percentDecode(s string) string {
	i := strings.IndexByte(s, '%')
	if i < 0 {
		return s
	}
	b := append(make([]byte, 0, len(s)), s[:i]...)
	for ; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]) {
			b = append(b, unhex(s[i+1])<<4|unhex(s[i+2]))
			i += 2
		} else {
			b = append(b, s[i])
		}
	}
	return string(b)
}

func unhex(c byte) byte {
	if isDigit(c) {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// unquote removes the double quotes that older versions of the HTTP binding put around values.
func unquote(s string) string {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return s
	}
	s = s[1 : len(s)-1]
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b = append(b, s[i])
	}
	return string(b)
}
