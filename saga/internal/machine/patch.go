package machine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
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
	var b, a any
	if len(before) > 0 {
		if err := read(before, &b); err != nil {
			return nil, err
		}
	}
	if err := read(after, &a); err != nil {
		return nil, err
	}
	var found []Difference
	return found, differ(nil, b, a, len(before) > 0, true, &found)
}

func differ(path []string, before, after any, had, has bool, found *[]Difference) error {
	b, isB := before.(map[string]any)
	a, isA := after.(map[string]any)
	if isB && isA {
		names := make(map[string]bool)
		for name := range b {
			names[name] = true
		}
		for name := range a {
			names[name] = true
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			vb, inB := b[name]
			va, inA := a[name]
			if err := differ(append(slices.Clone(path), name), vb, va, inB, inA, found); err != nil {
				return err
			}
		}
		return nil
	}
	if had == has && reflect.DeepEqual(before, after) {
		return nil
	}
	d := Difference{Path: path}
	var err error
	if had {
		if d.Before, err = json.Marshal(before); err != nil {
			return err
		}
	}
	if has {
		d.After, err = json.Marshal(after)
	}
	*found = append(*found, d)
	return err
}

// read decodes JSON with numbers as they are written.
func read(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(v)
}
