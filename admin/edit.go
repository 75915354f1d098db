package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func index(n int) string { return strconv.Itoa(n) }

// Errors of edits.
var (
	// ErrMarker: the marker of a hidden value is at another place than in the original.
	ErrMarker = errors.New("the marker of a hidden value is in another place; leave it where it was, or remove it")
	// ErrNotShown: nothing of the payload may be shown, so it cannot be edited.
	ErrNotShown = errors.New("no rule shows this payload, so it cannot be edited here")
)

// marker stands for a hidden value in an editor. It names its place, so that the value cannot be moved to another one.
func marker(p []string) string {
	if len(p) == 0 {
		return "hidden value of the whole payload"
	}
	return markerPrefix + strings.TrimPrefix(pointer(p), "/")
}

const markerPrefix = "hidden value of /"

// pointer is the JSON pointer to a path.
func pointer(p []string) string {
	var b strings.Builder
	for _, name := range p {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	return b.String()
}

// forEditing returns a payload in which markers stand for hidden values. The payload stays byte for byte as it is otherwise.
func (r *Rule) forEditing(payload []byte) (string, error) {
	if r == nil || !json.Valid(payload) {
		return "", ErrNotShown
	}
	hidden, err := r.hiddenValues(payload)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	last := 0
	for _, v := range hidden {
		text, err := json.Marshal(marker(v.path))
		if err != nil {
			return "", err
		}
		b.Write(payload[last:v.start])
		b.Write(text)
		last = v.end
	}
	b.Write(payload[last:])
	return b.String(), nil
}

// edited replaces the markers in an edited text by the hidden values of the original. Both the rule of the type before and that
// after the edit would show the result: an edit cannot change the type.
func (r *Rule) edited(original []byte, text string) ([]byte, error) {
	if r == nil || !json.Valid(original) {
		return nil, ErrNotShown
	}
	if !json.Valid([]byte(text)) {
		return nil, fmt.Errorf("%w: the payload is not valid JSON", ErrInput)
	}
	hidden, err := r.hiddenValues(original)
	if err != nil {
		return nil, err
	}
	values := make(map[string][]byte, len(hidden))
	for _, v := range hidden {
		if values[marker(v.path)] != nil {
			return nil, fmt.Errorf("%w: the payload has two values at %s, and one of them is hidden", ErrInput, pointer(v.path))
		}
		values[marker(v.path)] = original[v.start:v.end]
	}
	var out bytes.Buffer
	last := 0
	err = walk([]byte(text), func(v place) (bool, error) {
		var content string
		if json.Unmarshal([]byte(text)[v.start:v.end], &content) != nil ||
			!strings.HasPrefix(content, markerPrefix) && content != marker(nil) {
			return true, nil
		}
		value, known := values[content]
		if !known || content != marker(v.path) {
			return false, fmt.Errorf("%w: %s", ErrMarker, pointer(v.path))
		}
		out.WriteString(text[last:v.start])
		out.Write(value)
		last = v.end
		return false, nil
	})
	out.WriteString(text[last:])
	return out.Bytes(), err
}

// place is a value in a JSON text, and its path.
type place struct {
	path       []string
	start, end int
}

// hiddenValues returns the values that the rule hides, in order.
func (r *Rule) hiddenValues(payload []byte) (out []place, err error) {
	err = walk(payload, func(v place) (bool, error) {
		see := r.at(v.path)
		container := payload[v.start] == '{' || payload[v.start] == '['
		if see == hidden || see == inPart && !r.All && !container {
			out = append(out, v)
			return false, nil
		}
		return true, nil
	})
	return out, err
}

// walk calls visit for the values of a JSON text, containers before what is in them; visit says whether to enter a container.
func walk(text []byte, visit func(place) (enter bool, err error)) error {
	var value func(raw json.RawMessage, at int, p []string) error
	value = func(raw json.RawMessage, at int, p []string) error {
		if len(p) > maxDepth {
			return errDepth
		}
		enter, err := visit(place{p, at, at + len(raw)})
		if err != nil || !enter || raw[0] != '{' && raw[0] != '[' {
			return err
		}
		d := json.NewDecoder(bytes.NewReader(raw))
		if _, err := d.Token(); err != nil {
			return err
		}
		for n := 0; d.More(); n++ {
			name := index(n)
			if raw[0] == '{' {
				token, err := d.Token()
				if err != nil {
					return err
				}
				name, _ = token.(string)
			}
			var inner json.RawMessage
			if err := d.Decode(&inner); err != nil {
				return err
			}
			if err := value(inner, at+int(d.InputOffset())-len(inner), append(slices.Clip(p), name)); err != nil {
				return err
			}
		}
		return nil
	}
	trimmed := bytes.TrimLeft(text, " \t\r\n")
	return value(bytes.TrimRight(trimmed, " \t\r\n"), len(text)-len(trimmed), nil)
}
