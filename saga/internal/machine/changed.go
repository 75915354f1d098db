package machine

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// whole names the part of a structure that is neither a step nor an event.
const whole = "the saga"

// part is one part of a structure: a step, an event, or whole.
type part struct {
	name   string
	fields map[string]any // as in its graph
}

// Changes says how the structure of a saga differs from what it was, one text for each difference.
func Changes(was, is Rules) (out []string) {
	before, after := was.parts(), is.parts()
	old := make(map[string]part)
	for _, p := range before {
		old[p.name] = p
	}
	place, kept := "at the beginning", make(map[string]bool)
	for _, p := range after {
		o, found := old[p.name]
		if found {
			out = append(out, p.changes(o)...)
			kept[p.name] = true
		} else {
			out = append(out, fmt.Sprintf("%s was added %s", p.name, place))
		}
		if p.name != whole {
			place = "after " + p.name
		}
	}
	for _, p := range before {
		if !kept[p.name] {
			out = append(out, p.name+" was removed")
		}
	}
	if len(out) == 0 {
		out = append(out, "the order was "+order(before)+", and is "+order(after))
	}
	return out
}

// changes are those of a part.
func (p part) changes(was part) (out []string) {
	fields := maps.Clone(was.fields)
	maps.Copy(fields, p.fields)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if before, after := text(was.fields[name]), text(p.fields[name]); before != after {
			out = append(out, fmt.Sprintf("%s: %s was %s, and is %s", p.name, name, before, after))
		}
	}
	return out
}

func text(value any) string {
	if value == nil {
		return "not set"
	}
	out, err := json.Marshal(value)
	if err != nil {
		panic(err) // it was read from JSON
	}
	return string(out)
}

func order(parts []part) string {
	var names []string
	for _, p := range parts[1:] {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

// newPart returns a part that a graph describes by a node, which has no others in it.
func newPart(name string, node any) part {
	written, err := json.Marshal(node)
	p := part{name: name}
	if err == nil {
		err = json.Unmarshal(written, &p.fields)
	}
	if err != nil {
		panic(err) // a graph has nothing that JSON cannot write
	}
	return p
}

func (d *Definition) parts() []part {
	out := []part{newPart(whole, Graph{OnCompleted: d.OnCompleted != nil, OnCompensated: d.OnCompensated != nil})}
	for _, s := range d.All() {
		node := nodes([]*Step{s}, false)[0]
		node.Branches, node.Each = nil, nil
		for i := range node.Cases {
			node.Cases[i].Steps = nil
		}
		out = append(out, newPart("step "+s.Path, node))
	}
	return out
}

func (c *Contract) parts() []part {
	out := []part{newPart(whole, ContractGraph{Contract: c.Name, Observe: c.Observe})}
	for _, e := range c.graph(false).Events {
		out = append(out, newPart("event "+e.Name, e))
	}
	return out
}
