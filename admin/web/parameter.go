package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"mime"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/pause"
	"github.com/postrider/postrider/store"
)

// parameter is a value in the path or the query of a call. The description says what it may be, and calls with other values are refused.
type parameter struct {
	name string
	// least and most bound a number; a parameter without them is a text.
	least, most int64
	// words are all values that a text may have, none for any.
	words []string
}

// The patterns of texts: databases refuse U+0000, and what is required is more than space.
const (
	anyText  = `^[^\x00]*$`
	someText = `^[^\x00]*\S[^\x00]*$`
)

// The parameters of several calls.
var (
	limitParameter = parameter{name: "limit", least: 1, most: 1000}
	relayParameter = parameter{name: "relay"}
	deadParameters = []parameter{
		relayParameter, {name: "type"}, {name: "key"}, {name: "fingerprint"},
		{name: "state", words: wordsOf([]store.DeadState{store.DeadOpen, store.DeadRedriven, store.DeadDiscarded, store.DeadAny})},
	}
)

// pathParameter is a parameter of a path by its name.
func pathParameter(name string) parameter {
	if name == "number" {
		return parameter{name: name, least: 1, most: math.MaxInt64}
	}
	return parameter{name: name}
}

func wordsOf[T ~string](of []T) (words []string) {
	for _, word := range of {
		words = append(words, string(word))
	}
	return words
}

// schema describes the values of the parameter.
func (p parameter) schema() object {
	switch {
	case p.most > 0:
		return object{"type": "integer", "format": "int64", "minimum": p.least, "maximum": p.most}
	case p.words != nil:
		return object{"type": "string", "enum": p.words}
	}
	return object{"type": "string", "pattern": anyText}
}

// check returns an error unless the values of a query have what the parameter may be, once at most.
func (p parameter) check(query url.Values) error {
	values := query[p.name]
	if len(values) == 0 {
		return nil
	}
	if len(values) > 1 {
		return fmt.Errorf("%w: there are %d values of %s", admin.ErrInput, len(values), p.name)
	}
	if p.most > 0 {
		if n, err := strconv.ParseInt(values[0], 10, 64); err != nil || n < p.least || n > p.most {
			return fmt.Errorf("%w: %s is %q, which is no number from %d to %d", admin.ErrInput, p.name, values[0], p.least, p.most)
		}
	}
	if p.words != nil && !slices.Contains(p.words, values[0]) {
		return fmt.Errorf("%w: %s is %q, which is none of %q", admin.ErrInput, p.name, values[0], p.words)
	}
	return nil
}

// fieldRules say what fields of bodies may be, beyond their types.
var fieldRules = map[string]object{
	"action":       {"enum": wordsOf([]admin.ReviewAction{admin.ReviewRedrive, admin.ReviewDiscard})},
	"verb":         {"enum": wordsOf([]store.Verb{store.VerbRetry, store.VerbSkip, store.VerbDead, store.VerbDeadAll})},
	"side":         {"enum": []string{"", string(store.KindRelay), string(store.KindConsumer)}},
	"state":        {"enum": []string{"", string(store.DeadOpen)}},
	"operation":    {"enum": wordsOf(admin.SagaVerbs)},
	"rev":          {"minimum": 1},
	"max_redrives": {"minimum": -1},
	"rate":         {"minimum": 0},
	"stop_at":      {"minimum": 0, "exclusiveMaximum": 1},
	"for_seconds":  {"minimum": 0, "maximum": pause.Longest.Seconds()},
}

// body reads the body of a call: a JSON object with the required fields and no unknown ones.
func (c call) body(into any) error {
	kind := c.r.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(kind); err != nil || media != "application/json" {
		return fmt.Errorf("%w: the Content-Type is %q, not application/json", admin.ErrInput, kind)
	}
	text, err := io.ReadAll(c.r.Body)
	if err != nil {
		return fmt.Errorf("%w: %w", admin.ErrInput, err)
	}
	if hasNUL(text) {
		return fmt.Errorf("%w: the body has U+0000, which no message can have", admin.ErrInput)
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(text, &given); err != nil {
		return fmt.Errorf("%w: %w", admin.ErrInput, err)
	}
	for _, name := range required(reflect.TypeOf(into).Elem()) {
		if value, ok := given[name]; !ok || string(value) == "null" {
			return fmt.Errorf("%w: the body has no %s", admin.ErrInput, name)
		}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%w: %w", admin.ErrInput, err)
	}
	return nil
}

// hasNUL reports whether a string in JSON has U+0000, which PostgreSQL cannot store. An escaped backslash before u0000 makes none.
func hasNUL(text []byte) bool {
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		token, err := d.Token()
		if err != nil {
			return false
		}
		if s, ok := token.(string); ok && strings.ContainsRune(s, 0) {
			return true
		}
	}
}

// required are the names of the fields that a body must have: those whose tag has neither omitempty nor omitzero.
func required(body reflect.Type) (names []string) {
	for f := range body.Fields() {
		if name, options, _ := strings.Cut(f.Tag.Get("json"), ","); !strings.Contains(options, "omit") {
			names = append(names, name)
		}
	}
	return names
}
