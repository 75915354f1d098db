package machine

import (
	"bytes"
	"encoding/json"
	"strings"
)

// fields returns the values of an object by name.
func fields(object []byte) (found map[string]json.RawMessage, err error) {
	if found = plainFields(object); found == nil {
		err = json.Unmarshal(object, &found)
	}
	return found, err
}

// plainFields is fields for an object that is valid and whose names have no escapes and only ASCII; nil for others. A decoder takes several
// times as long, for data that each transition compares.
func plainFields(object []byte) map[string]json.RawMessage {
	s := scanner{text: object}
	if !s.take('{') {
		return nil
	}
	found := make(map[string]json.RawMessage)
	if s.take('}') {
		return s.last(found)
	}
	for {
		name := s.name()
		if name == nil || !s.take(':') {
			return nil
		}
		value := s.value()
		if len(value) == 0 {
			return nil
		}
		found[string(name)] = value
		if s.take('}') {
			return s.last(found)
		}
		if !s.take(',') {
			return nil
		}
	}
}

// scanner reads JSON from left to right.
type scanner struct {
	text []byte
	at   int
}

// last returns what was found, unless something follows it.
func (s *scanner) last(found map[string]json.RawMessage) map[string]json.RawMessage {
	if len(bytes.Trim(s.text[s.at:], spaces)) > 0 {
		return nil
	}
	return found
}

const spaces = " \t\r\n"

// take skips spaces and a character, if it is next.
func (s *scanner) take(c byte) bool {
	for s.at < len(s.text) && strings.IndexByte(spaces, s.text[s.at]) >= 0 {
		s.at++
	}
	if s.at == len(s.text) || s.text[s.at] != c {
		return false
	}
	s.at++
	return true
}

// name reads a string that is next, without quotes; nil if it is not plain.
func (s *scanner) name() []byte {
	if !s.take('"') {
		return nil
	}
	for begin := s.at; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return s.text[begin : s.at-1 : s.at-1]
		case c < ' ' || c > '~' || c == '\\':
			return nil
		}
	}
	return nil
}

// value reads up to what follows a value.
func (s *scanner) value() []byte {
	depth, inString := 0, false
	for begin := s.at; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case inString && c == '\\':
			s.at++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
		case depth == 0 && (c == ',' || c == '}'):
			return bytes.Trim(s.text[begin:s.at], spaces)
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}
