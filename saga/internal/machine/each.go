package machine

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxItemBytes is the largest size of the ID of an item.
const MaxItemBytes = 64

// defaultWindow is how many items of an Each are worked on at a time.
const defaultWindow = 16

// Item is an item of an Each, with the data that its steps take.
type Item struct {
	ID   string          `json:"id"`
	Data json.RawMessage `json:"data"`
}

// ItemCodec reads and writes the data of items, as Definition.Decode and Encode do those of the instance.
type ItemCodec struct {
	Decode func(json []byte) (any, error)
	Encode func(data any) ([]byte, error)
}

// For returns the definition as an instance runs it: an Each has a branch for each item that the instance has listed.
func (d *Definition) For(s *State) *Definition {
	if !d.each {
		return d
	}
	c := *d
	c.byPath, c.order = make(map[string]*Step, len(s.Steps)), nil
	c.Steps = c.expand(s, d.Steps, "", nil, nil)
	return &c
}

// expand returns copies of steps whose functions take the data of an item, or those of the instance if item is nil.
func (d *Definition) expand(s *State, steps []*Step, parent string, item *Item, codec *ItemCodec) []*Step {
	out := make([]*Step, len(steps))
	for i, template := range steps {
		c := *template
		c.Path, c.item, c.itemCodec = strings.TrimPrefix(parent+"/"+c.Name, "/"), item, codec
		d.byPath[c.Path], d.order = &c, append(d.order, &c)
		c.Cases = slices.Clone(c.Cases)
		for j := range c.Cases {
			c.Cases[j].Steps = d.expand(s, c.Cases[j].Steps, c.Path+"/"+c.Cases[j].Name, item, codec)
		}
		c.Branches, c.Items = d.expand(s, c.Branches, c.Path, item, codec), nil
		if st := s.Steps[c.Path]; c.Kind == Each && st != nil {
			for j := range st.Items {
				path := c.Path + "[" + st.Items[j].ID + "]"
				c.Items = append(c.Items, d.expand(s, c.Each, path, &st.Items[j], &c.Codec))
			}
		}
		out[i] = &c
	}
	return out
}

var itemInPath = regexp.MustCompile(`\[[^]]*\]`)

// StepName returns the path that a step has in its definition: without items, and without a generation.
func StepName(path string) string {
	name, _, _ := strings.Cut(itemInPath.ReplaceAllString(path, ""), "#")
	return name
}

// scope is the data that the functions of some steps take: those of the instance, or of an item.
type scope struct {
	ItemCodec
	json *json.RawMessage // as they are stored
	data any              // decoded; nil: not yet
}

// scope returns the data that the functions of a step take.
func (t *transition) scope(s *Step) *scope {
	if s.item == nil {
		return &t.root
	}
	sc := t.items[s.item]
	if sc == nil {
		sc = &scope{ItemCodec: *s.itemCodec, json: &s.item.Data}
		t.items[s.item] = sc
	}
	return sc
}

// value returns the data for a function of a step. It panics if they cannot be decoded, so call it in guarded.
func (sc *scope) value() any {
	if sc.data == nil {
		data, err := sc.Decode(*sc.json)
		if err != nil {
			panic(fmt.Errorf("decode the data: %w", err))
		}
		sc.data = data
	}
	return sc.data
}

// size is that of the data of the instance and of all items.
func (s *State) size(data json.RawMessage) int {
	size := len(data)
	for _, st := range s.Steps {
		size += sizeOf(st.Items)
	}
	return size
}

func sizeOf(items []Item) (size int) {
	for i := range items {
		size += len(items[i].Data)
	}
	return size
}

// list lists the items of an Each. The list does not change afterwards.
func (t *transition) list(s *Step, st *StepState) {
	var items []Item
	if !t.guarded(s, st, "Items", func(data any) (err error) {
		if items, err = s.List(data); err != nil {
			return err
		}
		return t.fits(sizeOf(items))
	}) {
		return
	}
	if why := t.invalid(items); why != "" {
		t.refused(s, st, Refusal{Reason: "invalid items", Text: why})
		return
	}
	st.Items = items
	t.event("items", s.Path, strconv.Itoa(len(items)))
	t.d = t.d.For(t.s)
}

// invalid says why items cannot be the branches of an Each, "" if they can.
func (t *transition) invalid(items []Item) string {
	if limit := t.p.MaxItems; limit > 0 && len(items) > limit {
		return fmt.Sprintf("there are %d items, more than %d", len(items), limit)
	}
	known := make(map[string]bool, len(items))
	for _, item := range items {
		switch unprintable := func(r rune) bool { return !unicode.IsPrint(r) || r == '[' || r == ']' }; {
		case item.ID == "" || len(item.ID) > MaxItemBytes || !utf8.ValidString(item.ID) || strings.ContainsFunc(item.ID, unprintable):
			return fmt.Sprintf("the ID %q of an item must have 1 to %d bytes of printable text without brackets", item.ID, MaxItemBytes)
		case known[item.ID]:
			return fmt.Sprintf("two items have the ID %q", item.ID)
		}
		known[item.ID] = true
	}
	return ""
}

// runItems runs the steps of items, of at most Window at a time. It reports whether all are finished and joined.
func (t *transition) runItems(s *Step, st *StepState) bool {
	open := 0
	for _, steps := range t.d.Step(s.Path).Items {
		if open == s.window() || t.s.Back {
			return false
		}
		if !t.run(steps) {
			open++
		}
	}
	return open == 0 && t.join(t.d.Step(s.Path), st)
}

// join takes what the items have become into the data.
func (t *transition) join(s *Step, st *StepState) bool {
	if s.Join != nil && !t.change(s, st, "Join", func(data any) {
		values := make([]any, len(st.Items))
		for i := range st.Items {
			values[i] = t.scope(&Step{item: &st.Items[i], itemCodec: &s.Codec}).value()
		}
		s.Join(data, values)
	}) {
		return false
	}
	t.finish(s, st)
	return true
}

// undoItems undoes the steps of items, the last item first, of at most Window at a time; one that waits for an operator does not
// count. It reports whether no obligation of theirs is open.
func (t *transition) undoItems(s *Step) bool {
	all, open := true, 0
	for _, steps := range slices.Backward(s.Items) {
		if open == s.window() {
			return false
		}
		if !t.undo(steps) {
			all = false
			if !t.anyStuck(steps) {
				open++
			}
		}
	}
	return all
}

// anyStuck says whether one of the steps, or of those in them, is stuck.
func (t *transition) anyStuck(steps []*Step) bool {
	for _, s := range steps {
		st := t.s.Steps[s.Path]
		if st == nil {
			continue
		}
		if st.Status == StepStuck || t.anyStuck(s.chosen(st.Case)) || t.anyStuck(s.Branches) || slices.ContainsFunc(s.Items, t.anyStuck) {
			return true
		}
	}
	return false
}

// window is how many items are worked on at a time.
func (s *Step) window() int {
	if s.Window > 0 {
		return s.Window
	}
	return defaultWindow
}

// LocalRun is what the engine needs to run a local step of an instance.
type LocalRun struct {
	Step *Step
	// Data are those that the step takes.
	Data  any
	codec ItemCodec
	limit int // bytes, of the data as the step leaves them
}

// Local returns the local step with a path, for an instance whose data may have maxState bytes.
func (d *Definition) Local(in *Instance, path string, maxState int) (LocalRun, error) {
	t := &transition{advance: advance{in: in, s: &in.State}, d: d.For(&in.State), items: make(map[*Item]*scope)}
	t.root = scope{ItemCodec: ItemCodec{d.Decode, d.Encode}, json: &in.Data}
	s := t.d.Step(path)
	if s == nil || s.Kind != Local {
		return LocalRun{}, fmt.Errorf("saga %s v%d has no local step %s", d.Name, d.Version, path)
	}
	sc := t.scope(s)
	data, err := sc.Decode(*sc.json)
	if err != nil {
		return LocalRun{}, fmt.Errorf("read the data of instance %s for step %s: %w", in.ID, path, err)
	}
	size := in.State.size(in.Data)
	return LocalRun{Step: s, Data: data, codec: sc.ItemCodec, limit: max(maxState, size) - size + len(*sc.json)}, nil
}

// Result returns the data as the step has left them. Its error says why they cannot be kept: roll back what the step did.
func (r LocalRun) Result() (json.RawMessage, error) {
	text, err := r.codec.Encode(r.Data)
	if err != nil {
		return nil, fmt.Errorf("encode the data: %w", err)
	}
	if len(text) > r.limit {
		return nil, fmt.Errorf("the data would have %d bytes, %d more than MaxState lets them", len(text), len(text)-r.limit)
	}
	if _, err := r.codec.Decode(text); err != nil {
		return nil, fmt.Errorf("decode the data again: %w", err)
	}
	return text, nil
}
