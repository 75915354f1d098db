package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// Rule says what is shown of messages of some types. The first rule that matches a type applies. See Rule.Validate.
type Rule struct {
	// Type is a pattern of types, in which * stands for any text: "order.*", "com/acme/order.*".
	Type string
	// Show are JSON pointers to the values that are shown, with everything in them; * stands for any name or index:
	// "/items/*/sku". All shows the whole payload except what Hide points to.
	Show []string
	All  bool
	Hide []string
	// Headers are patterns of names of headers that are shown.
	Headers []string
	// Causes shows causes as they are, and the answers of receivers. Both can quote the payload.
	Causes bool
	// Keys is the smallest role that sees keys, subjects and correlation IDs, "" for none. Without it, a key is shown as the ID of a message that has it,
	// and nothing is found by its key. Sagas are identified by their runs then.
	Keys Role
}

// Segment is a part of a payload that is shown: a text, or the place of a hidden value.
type Segment struct {
	Text   string `json:"text,omitempty"`
	Hidden bool   `json:"hidden,omitempty"`
}

// Header is a header of a message; the value of a hidden one is "".
type Header struct {
	Name   string `json:"name"`
	Value  string `json:"value,omitempty"`
	Hidden bool   `json:"hidden,omitempty"`
}

// maxDepth is how deep the values of a payload may be nested to be shown.
const maxDepth = 64

// Validate reports patterns of a rule that are malformed, and a role that does not exist.
func (r Rule) Validate() error {
	for _, pattern := range append([]string{r.Type}, r.Headers...) {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("%w: %q", err, pattern)
		}
	}
	if r.Keys != "" && !slices.Contains(Roles, r.Keys) {
		return fmt.Errorf("keys: there is no role %q; use viewer, operator or admin", r.Keys)
	}
	return nil
}

// ruleFor returns the rule that applies to a type, nil if there is none. A malformed rule could be meant for any type: it hides all
// that no rule before it shows.
func (s *Service) ruleFor(kind string) *Rule {
	flat := func(text string) string { return strings.ReplaceAll(text, "/", ".") } // * stands for slashes too
	for i := range s.cfg.Show {
		switch ok, err := path.Match(flat(s.cfg.Show[i].Type), flat(kind)); {
		case err != nil:
			return nil
		case ok:
			return &s.cfg.Show[i]
		}
	}
	return nil
}

// anyType stands for messages whose type is not known.
const anyType = "*"

// seesCauses reports whether the principal gets the causes of a type as they are; those of "" and anyType if it does of all types.
func (s *Service) seesCauses(p Principal, kind string) bool {
	if kind == "" || kind == anyType {
		return s.ofAllTypes(func(r *Rule) bool { return r.Causes }) && p.Role.May("Content")
	}
	rule := s.ruleFor(kind)
	return rule != nil && rule.Causes && p.Role.May("Content")
}

// ofAllTypes reports whether rules show something of every type: one for all types does, and so does each one before it.
func (s *Service) ofAllTypes(shows func(*Rule) bool) bool {
	for i := range s.cfg.Show {
		if r := &s.cfg.Show[i]; !shows(r) || r.Type == anyType {
			return shows(r)
		}
	}
	return false
}

// cause returns a cause as the principal may see it.
func (s *Service) cause(p Principal, kind, cause string) string {
	if s.seesCauses(p, kind) {
		return cause
	}
	return store.NormalizeCause(cause)
}

func (s *Service) attempts(p Principal, kind string, history []postrider.AttemptInfo) []postrider.AttemptInfo {
	history = slices.Clone(history)
	for i := range history {
		history[i].Cause = s.cause(p, kind, history[i].Cause)
	}
	return history
}

// payload returns what the rule shows. Without a rule, and if the payload is not valid JSON, it is hidden as a whole.
func (r *Rule) payload(payload []byte) []Segment {
	switch {
	case r == nil:
		return []Segment{{Hidden: true}}
	case !json.Valid(payload):
		if r.All && len(r.Hide) == 0 && utf8.Valid(payload) {
			return []Segment{{Text: string(payload)}}
		}
		return []Segment{{Hidden: true}}
	}
	w := &shownJSON{decoder: json.NewDecoder(bytes.NewReader(payload)), rule: r}
	w.decoder.UseNumber()
	if err := w.value(nil, ""); err != nil {
		return []Segment{{Hidden: true}}
	}
	w.flush()
	return w.out
}

func (r *Rule) headers(headers map[string]string) (out []Header) {
	for name, value := range headers {
		h := Header{Name: name, Value: value}
		h.Hidden = r == nil || !slices.ContainsFunc(r.Headers, func(pattern string) bool {
			ok, err := path.Match(strings.ToLower(pattern), strings.ToLower(name))
			return ok && err == nil
		})
		if h.Hidden {
			h.Value = ""
		}
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// visibility says how much of a value is shown.
type visibility int

const (
	hidden visibility = iota
	inPart
	whole
)

// at returns the visibility of the value at a path.
func (r *Rule) at(p []string) visibility {
	if r.All {
		covered := hiddenBy(r.Hide, p)
		if covered == whole {
			return hidden
		}
		return inPart
	}
	return hiddenBy(r.Show, p)
}

// hiddenBy reports whether pointers cover the value at a path: whole, or in part.
func hiddenBy(pointers []string, p []string) visibility {
	found := hidden
	for _, pointer := range pointers {
		want := split(pointer)
		n := min(len(want), len(p))
		same := slices.EqualFunc(want[:n], p[:n], func(w, name string) bool { return w == "*" || strings.EqualFold(w, name) })
		switch {
		case same && len(want) <= len(p):
			return whole
		case same:
			found = inPart
		}
	}
	return found
}

// split returns the names of a JSON pointer.
func split(pointer string) []string {
	pointer = strings.Trim(pointer, "/")
	if pointer == "" {
		return nil
	}
	names := strings.Split(pointer, "/")
	for i, name := range names {
		names[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
	}
	return names
}

// shownJSON writes what a rule shows of a JSON text, indented.
type shownJSON struct {
	decoder *json.Decoder
	rule    *Rule
	text    strings.Builder
	out     []Segment
}

var errDepth = fmt.Errorf("%w: the payload is nested too deeply", ErrInput)

func (w *shownJSON) flush() {
	if w.text.Len() > 0 {
		w.out = append(w.out, Segment{Text: w.text.String()})
		w.text.Reset()
	}
}

// value writes the next value; a container is entered if something in it can be shown.
func (w *shownJSON) value(p []string, indent string) error {
	if len(p) > maxDepth {
		return errDepth
	}
	see := w.rule.at(p)
	if see == hidden {
		w.flush()
		w.out = append(w.out, Segment{Hidden: true})
		var skipped json.RawMessage
		return w.decoder.Decode(&skipped)
	}
	token, err := w.decoder.Token()
	if err != nil {
		return err
	}
	open, container := token.(json.Delim)
	if !container {
		if see == inPart && !w.rule.All { // the rule shows a value in it, and it has none
			w.flush()
			w.out = append(w.out, Segment{Hidden: true})
			return nil
		}
		return w.scalar(token)
	}
	return w.container(open, p, indent)
}

func (w *shownJSON) scalar(token json.Token) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(token)
	w.text.WriteString(strings.TrimSuffix(b.String(), "\n"))
	return err
}

func (w *shownJSON) container(open json.Delim, p []string, indent string) error {
	inner, n := indent+"  ", 0
	w.text.WriteString(open.String())
	for ; w.decoder.More(); n++ {
		if n > 0 {
			w.text.WriteByte(',')
		}
		w.text.WriteString("\n" + inner)
		var name string
		if open == '{' {
			token, err := w.decoder.Token()
			if err != nil {
				return err
			}
			name, _ = token.(string)
			if err := w.scalar(token); err != nil {
				return err
			}
			w.text.WriteString(": ")
		} else {
			name = index(n)
		}
		if err := w.value(append(slices.Clip(p), name), inner); err != nil {
			return err
		}
	}
	end, err := w.decoder.Token()
	if err != nil {
		return err
	}
	if n > 0 {
		w.text.WriteString("\n" + indent)
	}
	w.text.WriteString(end.(json.Delim).String())
	return nil
}
