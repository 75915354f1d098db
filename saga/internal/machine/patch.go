package machine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// MergePatch returns a JSON document with a merge patch (RFC 7396) applied. Numbers keep their digits.
func MergePatch(doc, patch []byte) ([]byte, error) {
	var d, p any
	if err := read(doc, &d); err != nil {
		return nil, fmt.Errorf("read the document: %w", err)
	}
	if err := read(patch, &p); err != nil {
		return nil, fmt.Errorf("read the merge patch: %w", err)
	}
	return json.Marshal(merge(d, p))
}

func merge(doc, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	merged, ok := doc.(map[string]any)
	if !ok {
		merged = make(map[string]any)
	}
	for name, value := range changes {
		if value == nil {
			delete(merged, name)
		} else {
			merged[name] = merge(merged[name], value)
		}
	}
	return merged
}

// Difference is a change of the data at a path: what was there before and after. Nil means that nothing was there.
type Difference struct {
	Path   []string        `json:"path"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// Differences lists what changed between two JSON documents, by path. Arrays are compared as a whole.
func Differences(before, after []byte) ([]Difference, error) {
	if bytes.Equal(before, after) {
		return nil, nil
	}
	var found []Difference
	err := differ(nil, before, after, &found)
	return found, err
}

// differ decodes only what is not the same text. An empty text says that there is nothing.
func differ(path []string, before, after json.RawMessage, found *[]Difference) error {
	if isObject(before) && isObject(after) {
		b, errB := fields(before)
		a, errA := fields(after)
		if err := errors.Join(errB, errA); err != nil {
			return err
		}
		names := slices.AppendSeq(slices.Collect(maps.Keys(b)), maps.Keys(a))
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			if bytes.Equal(b[name], a[name]) {
				continue
			}
			if err := differ(append(slices.Clone(path), name), b[name], a[name], found); err != nil {
				return err
			}
		}
		return nil
	}
	d := Difference{Path: path}
	var err error
	if d.Before, err = canonical(before); err != nil {
		return err
	}
	if d.After, err = canonical(after); err == nil && !bytes.Equal(d.Before, d.After) {
		*found = append(*found, d)
	}
	return err
}

// Changed returns a JSON document with differences applied, in canonical form. An empty document is nothing yet.
func Changed(doc []byte, differences []Difference) ([]byte, error) {
	var v any
	if len(doc) > 0 {
		if err := read(doc, &v); err != nil {
			return nil, fmt.Errorf("read the document: %w", err)
		}
	}
	for _, d := range differences {
		var value any
		if len(d.After) > 0 {
			if err := read(d.After, &value); err != nil {
				return nil, fmt.Errorf("read a difference: %w", err)
			}
		}
		v = put(v, d.Path, value, len(d.After) == 0)
	}
	return json.Marshal(v)
}

// put returns a document with a value at a path, or without one.
func put(doc any, path []string, value any, remove bool) any {
	if len(path) == 0 {
		return value
	}
	fields, ok := doc.(map[string]any)
	if !ok {
		fields = make(map[string]any)
	}
	if name := path[0]; remove && len(path) == 1 {
		delete(fields, name)
	} else {
		fields[name] = put(fields[name], path[1:], value, remove)
	}
	return fields
}

func isObject(text []byte) bool {
	text = bytes.TrimLeft(text, " \t\r\n")
	return len(text) > 0 && text[0] == '{'
}

// canonical returns JSON without spaces, with sorted names. Nothing stays nothing.
func canonical(text json.RawMessage) (json.RawMessage, error) {
	if len(text) == 0 {
		return nil, nil
	}
	if isPlain(text) {
		return text, nil
	}
	var v any
	if err := read(text, &v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// isPlain reports whether a text is a number, or a string without what has to be, or may be, escaped: it is canonical as it is. Most values
// are.
func isPlain(text []byte) bool {
	last := len(text) - 1
	switch first := text[0]; {
	case first == '-' || '0' <= first && first <= '9':
		return text[last] > ' ' && json.Valid(text)
	case first != '"' || last == 0 || text[last] != '"':
		return false
	}
	for _, c := range text[1:last] {
		if c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

// read decodes JSON with numbers as they are written.
func read(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("there is text after the JSON value")
	}
	return nil
}
