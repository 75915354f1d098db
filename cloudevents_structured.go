package postrider

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// CloudEventsJSON is the media type of EncodeCloudEvent's result.
const CloudEventsJSON = "application/cloudevents+json"

// bareNames are the names of the JSON event format, without a prefix.
var bareNames = prefixedNames("")

// EncodeCloudEvent returns the message as a CloudEvent in structured mode (JSON event format 1.0), with the attributes
// that CloudEventsBinary lists. A payload that is valid JSON, nested up to 1,000 deep, and has a JSON ContentType becomes
// "data", byte for byte; any other becomes "data_base64".
func EncodeCloudEvent(m *Message) []byte {
	b := make([]byte, 0, 512+len(m.Payload)*4/3)
	b = append(b, '{')
	for name, value := range attributes(m, bareNames) {
		b = append(b, '"')
		b = append(b, name...)
		b = append(b, '"', ':')
		if name == bareNames.schemaVersion {
			b = append(b, value...)
		} else {
			b = appendJSONString(b, value)
		}
		b = append(b, ',')
	}
	if m.ContentType != "" {
		b = append(b, `"datacontenttype":`...)
		b = appendJSONString(b, m.ContentType)
		b = append(b, ',')
	}
	switch {
	case len(m.Payload) == 0:
		b[len(b)-1] = '}' // in place of the last comma
		return b
	case isJSONType(m.ContentType) && utf8.Valid(m.Payload) && embeddable(m.Payload) && !hasSpaceAround(m.Payload):
		b = append(b, `"data":`...)
		b = append(b, m.Payload...)
	default:
		b = append(b, `"data_base64":"`...)
		b = append(base64.StdEncoding.AppendEncode(b, m.Payload), '"')
	}
	return append(b, '}')
}

// hasSpaceAround: surrounding white space is not part of a JSON value and would be lost.
func hasSpaceAround(payload []byte) bool {
	return len(bytes.TrimSpace(payload)) != len(payload)
}

// DecodeCloudEvent reads a CloudEvent in structured mode, from any sender. Without datacontenttype it is
// application/json; Topic defaults to Type. The result follows the rules of CloudEvents, not necessarily all those of
// Validate. With an error, it returns the attributes that could be read, and data as the payload.
func DecodeCloudEvent(data []byte) (*Message, error) {
	m, err := decodeStructured(newAttributeReader(), CloudEventsJSON, data)
	if err != nil {
		m.Payload = data
		return m, fmt.Errorf("decode CloudEvent: %w", err)
	}
	return m, nil
}

// decodeStructured reads an event that has the media type contentType. With an error, that is the message's content type.
func decodeStructured(r *attributeReader, contentType string, text []byte) (*Message, error) {
	var data, dataBase64 json.RawMessage
	err := eachMember(text, func(name string, value json.RawMessage) {
		var err error
		switch name {
		case "data":
			err = setOnce(&data, name, value)
		case "data_base64":
			err = setOnce(&dataBase64, name, value)
		default:
			attribute, ok, textErr := attributeText(value)
			if textErr != nil {
				err = fmt.Errorf("attribute %s %w", name, textErr)
			} else if ok {
				r.set(name, attribute)
			}
		}
		if err != nil {
			r.fail(name, err)
		}
	})
	if err != nil {
		r.m.ContentType = contentType
		return r.m, err
	}
	m, err := r.message()
	if err == nil {
		m.ContentType = cmp.Or(m.ContentType, DefaultContentType)
		m.Payload, err = structuredPayload(m.ContentType, data, dataBase64)
	}
	if err != nil {
		m.ContentType = contentType
	}
	return m, err
}

// eachMember calls visit for every member of a JSON object, in order; a duplicate name is visited twice. It fails if text
// is not exactly one object.
func eachMember(text []byte, visit func(name string, value json.RawMessage)) error {
	var object json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil { // the rest relies on text being valid JSON
		return err
	}
	if object[0] != '{' {
		return errors.New("not a JSON object")
	}
	rest := bytes.TrimSpace(object[1:])
	for rest[0] != '}' {
		end := valueEnd(rest)
		name, err := textOf(rest[:end])
		if err != nil {
			return err
		}
		rest = bytes.TrimSpace(rest[end:])
		rest = bytes.TrimSpace(rest[1:]) // the colon
		end = valueEnd(rest)
		visit(name, json.RawMessage(rest[:end:end]))
		rest = bytes.TrimSpace(rest[end:])
		if rest[0] == ',' {
			rest = bytes.TrimSpace(rest[1:])
		}
	}
	return nil
}

// valueEnd returns the length of the JSON value at the start of valid JSON.
func valueEnd(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // the end of the object that contains a number or literal
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
		}
	}
	return len(text)
}

func setOnce(member *json.RawMessage, name string, value json.RawMessage) error {
	if *member != nil {
		return fmt.Errorf("%s is there twice", name)
	}
	*member = value
	return nil
}

// attributeText returns the canonical string of an attribute's JSON value; ok is false for null, which means unset.
func attributeText(value json.RawMessage) (text string, ok bool, err error) {
	switch c := value[0]; {
	case c == 'n':
		return "", false, nil
	case c == '"':
		text, err = textOf(value)
		return text, true, err
	case c == 't' || c == 'f':
		return string(value), true, nil
	case c == '{' || c == '[':
		return "", false, errors.New("is a JSON object or array: CloudEvents allows strings, integers and booleans")
	case bytes.ContainsAny(value, ".eE"):
		return "", false, errors.New("is a number that is not an integer")
	default:
		return string(value), true, nil
	}
}

// textOf reads a valid JSON string, without unmarshalling if it has no escapes.
func textOf(value []byte) (text string, err error) {
	if inner := value[1 : len(value)-1]; bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return string(inner), nil
	}
	err = json.Unmarshal(value, &text)
	return text, err
}

func structuredPayload(contentType string, data, dataBase64 json.RawMessage) ([]byte, error) {
	if data != nil && dataBase64 != nil {
		return nil, errors.New("data and data_base64 are both there")
	}
	switch {
	case dataBase64 != nil:
		var payload []byte // encoding/json reads base64 into bytes, and null as none
		if err := json.Unmarshal(dataBase64, &payload); err != nil || dataBase64[0] == '[' {
			return nil, errors.New("data_base64 is not a string of base64")
		}
		return payload, nil
	case data == nil || isJSONType(contentType):
		return data, nil
	case data[0] == 'n':
		return nil, nil
	case data[0] != '"':
		return nil, fmt.Errorf("data of content type %q is not a string", contentType)
	default:
		text, err := textOf(data)
		return []byte(text), err
	}
}
