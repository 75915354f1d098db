package machine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
)

// migrate lets an instance of another version continue with this definition, whatever its status is. If it cannot, the verb is refused:
// what it has reached must be the same in both, so that nothing that was done is done again, left out or not undone.
func (d *Definition) migrate(p Policy, in *Instance, v *Verb) (out Output, refused bool) {
	t := &advance{p: p, in: in, s: &in.State}
	switch {
	case t.s.Ended != "":
		t.refuse("the instance is %s", t.s.Ended)
	case v.Rev > 0 && v.Rev != in.Rev:
		t.refuse(movedOn, v.Rev, in.Rev)
	case v.To != d.Version: // the engine looked for it
		t.refuse("no running process has version %d of saga %s", v.To, d.Name)
	case v.From == nil:
		t.refuse("no process has reported the definition that the instance has")
	case v.From.Version == d.Version:
		t.refuse("the instance is of version %d", d.Version)
	default:
		if err := d.Takes(v.From, t.s); err != nil {
			t.refuse("%v", err)
		} else if err := d.upgrade(p, v.From.Version, in); err != nil {
			t.refuse("version %d cannot take the data: %v", d.Version, err)
		}
	}
	if t.out.Refused == "" {
		return Output{}, false
	}
	t.record(v)
	t.out.Passed = cmp.Or(v.From, d).For(t.s).passed(t.s)
	in.Rev++
	return t.out, true
}

// Takes says why an instance that began with another version of the definition cannot continue with this one, nil if it can.
func (d *Definition) Takes(from *Definition, s *State) error {
	return d.takes(from.Steps, d.Steps, s)
}

// takes compares a sequence of steps as far as an instance has reached it. Only what it has reached last may have another end.
func (d *Definition) takes(from, to []*Step, s *State) error {
	for i, step := range from {
		st := s.Steps[step.Path]
		if st == nil { // nor was any after it
			return nil
		}
		if i >= len(to) || to[i].Path != step.Path {
			return fmt.Errorf("version %d does not have step %s in its place", d.Version, step.Path)
		}
		last := i+1 == len(from) || s.Steps[from[i+1].Path] == nil
		if last && step.Kind == Choose && to[i].Kind == Choose && st.Case != "" {
			if !slices.ContainsFunc(to[i].Cases, func(c Case) bool { return c.Name == st.Case }) {
				return fmt.Errorf("version %d does not have case %s of step %s", d.Version, st.Case, step.Path)
			}
			return d.takes(step.chosen(st.Case), to[i].chosen(st.Case), s)
		}
		if !reflect.DeepEqual(nodes([]*Step{step}, false), nodes([]*Step{to[i]}, false)) {
			return fmt.Errorf("step %s is another one in version %d", step.Path, d.Version)
		}
	}
	return nil
}

// upgrade makes the data of an instance those of this version.
func (d *Definition) upgrade(p Policy, from int, in *Instance) error {
	text := in.Data
	if d.Upgrade != nil {
		var err error
		if text, err = d.Upgrade(from, text); err != nil {
			return err
		}
	}
	if _, err := d.Decode(text); err != nil {
		return err
	}
	if size := in.State.size(text); p.MaxState > 0 && size > p.MaxState && len(text) > len(in.Data) {
		return fmt.Errorf("they would have %d bytes, more than MaxState (%d)", size, p.MaxState)
	}
	in.Data = text
	return nil
}

// Upgrade makes the data of an instance of another version those of this one, as JSON.
type Upgrade func(from int, data json.RawMessage) (json.RawMessage, error)
