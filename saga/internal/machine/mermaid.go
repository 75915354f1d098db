package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Mermaid draws the definition as a Mermaid flowchart. With a state, it draws the instance over it.
func (d *Definition) Mermaid(s *State) string {
	if s != nil {
		d = d.For(s)
	}
	m := &drawing{d: d, s: s}
	m.line("flowchart TD")
	m.line("  start((start))")
	ends := m.sequence(d.Steps, []edge{{from: "start"}}, "  ")
	m.line("  done((end))")
	m.connect(ends, "done")
	m.classes()
	return m.text.String()
}

type drawing struct {
	d    *Definition
	s    *State
	text strings.Builder
	next int
}

// edge leads from a node, under a label, to the node that is drawn next.
type edge struct{ from, label string }

// classes define how statuses look.
func (m *drawing) classes() {
	if m.s != nil {
		m.line("  classDef done fill:#d5f0d5,stroke:#383")
		m.line("  classDef waiting fill:#fff3c4,stroke:#c90,stroke-width:2px")
		m.line("  classDef refused fill:#fbd5d5,stroke:#c33")
		m.line("  classDef undone fill:#ddd,stroke:#888")
		m.line("  classDef skipped fill:#fff,stroke:#bbb,stroke-dasharray:3")
	}
}

func (m *drawing) line(format string, args ...any) { fmt.Fprintf(&m.text, format+"\n", args...) }

func (m *drawing) connect(from []edge, to string) {
	for _, e := range from {
		if e.label == "" {
			m.line("  %s --> %s", e.from, to)
		} else {
			m.line("  %s -- %s --> %s", e.from, e.label, to)
		}
	}
}

// sequence draws steps one after the other and returns the edges that leave the last one.
func (m *drawing) sequence(steps []*Step, from []edge, indent string) []edge {
	for _, s := range steps {
		from = m.step(s, from, indent)
	}
	return from
}

func (m *drawing) step(s *Step, from []edge, indent string) []edge {
	m.next++
	id := "s" + strconv.Itoa(m.next)
	switch s.Kind {
	case Choose:
		m.line("%s%s{%q}", indent, id, s.Name)
		m.connect(from, id)
		var out []edge
		for _, c := range s.Cases {
			out = append(out, m.sequence(c.Steps, []edge{{id, c.Name}}, indent)...)
		}
		if last := s.Cases[len(s.Cases)-1]; last.If != nil {
			out = append(out, edge{id, "otherwise"})
		}
		return out
	case Parallel:
		m.line("%ssubgraph %s[%q]", indent, id, s.Name+" · parallel")
		for _, b := range s.Branches {
			m.step(b, nil, indent+"  ")
		}
		m.line("%send", indent)
		m.connect(from, id)
		return []edge{{from: id}}
	case Each:
		m.line("%ssubgraph %s[%q]", indent, id, s.Name+" · each")
		m.items(s, indent+"  ")
		m.line("%send", indent)
		m.connect(from, id)
		return []edge{{from: id}}
	}
	open, shut := "[", "]"
	switch {
	case s.Pivot:
		open, shut = "[[", "]]"
	case s.Kind == Await || s.Kind == Ask:
		open, shut = "[/", "/]"
	}
	m.line("%s%s%s%q%s%s", indent, id, open, m.label(s), shut, m.class(s))
	m.connect(from, id)
	return []edge{{from: id}}
}

// drawnItems is how many items of an Each a drawing has.
const drawnItems = 12

// items draws the items of an Each: the first ones of those that are not finished, then others. Without items, it draws their steps.
func (m *drawing) items(s *Step, indent string) {
	if len(s.Items) == 0 {
		m.sequence(s.Each, nil, indent)
		return
	}
	items := slices.Clone(s.Items)
	slices.SortStableFunc(items, func(a, b []*Step) int { return cmp.Compare(m.urgency(a), m.urgency(b)) })
	for _, steps := range items[:min(len(items), drawnItems)] {
		m.sequence(steps, nil, indent)
	}
	if more := len(items) - drawnItems; more > 0 {
		m.next++
		m.line("%ss%d[%q]", indent, m.next, fmt.Sprintf("and %d more", more))
	}
}

// urgency is 0 for an item that waits for something, 1 for one that was started, and 2 for one that was not.
func (m *drawing) urgency(steps []*Step) int {
	first := 2
	for _, s := range steps {
		if m.s.Steps[s.Path] != nil {
			first = min(first, 1)
		}
		if st := m.s.Steps[s.Path]; st != nil && st.open() {
			return 0
		}
	}
	return first
}

// label is the text of a step: its name, what is special about it, and its status.
func (m *drawing) label(s *Step) string {
	label := s.Name
	if s.item != nil {
		label = strings.ReplaceAll(s.item.ID, `"`, "'") + " · " + label
	}
	if s.Pivot {
		label += " · pivot"
	}
	if s.OnlyIf != nil {
		label += " · conditional"
	}
	if m.s == nil || m.s.Steps[s.Path] == nil {
		return label
	}
	st := m.s.Steps[s.Path]
	label += "<br>" + string(st.Status)
	if st.Attempt > 1 {
		label += ", attempt " + strconv.Itoa(st.Attempt)
	}
	if st.Reason != "" {
		label += ": " + strings.NewReplacer(`"`, "'", "\n", " ").Replace(st.Reason)
	}
	return label
}

func (m *drawing) class(s *Step) string {
	if m.s == nil || m.s.Steps[s.Path] == nil {
		return ""
	}
	return statusClass(m.s.Steps[s.Path].Status)
}

func statusClass(status StepStatus) string {
	switch status {
	case StepDone:
		return ":::done"
	case StepRefused, StepStuck:
		return ":::refused"
	case StepUndone, StepReleased:
		return ":::undone"
	case StepSkipped:
		return ":::skipped"
	default:
		return ":::waiting"
	}
}
