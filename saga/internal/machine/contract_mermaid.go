package machine

import (
	"slices"
	"strconv"
	"strings"
)

// Mermaid draws the contract as a Mermaid flowchart. With a state, it draws the instance over it.
func (c *Contract) Mermaid(s *State) string {
	m := &drawing{s: s}
	m.line("flowchart TD")
	for i, e := range c.Events {
		open, shut := "[", "]"
		switch {
		case e.Start:
			open, shut = "([", "])"
		case e.Pivot:
			open, shut = "[[", "]]"
		}
		m.line("  e%d%s%q%s%s", i+1, open, m.eventLabel(c, e), shut, m.eventClass(c, e))
		for _, group := range e.After {
			for _, name := range group {
				before := slices.IndexFunc(c.Events, func(o *Expected) bool { return o.Name == name })
				if len(group) > 1 {
					m.line("  e%d -- or --> e%d", before+1, i+1)
				} else {
					m.line("  e%d --> e%d", before+1, i+1)
				}
			}
		}
	}
	m.classes()
	return m.text.String()
}

// eventLabel is the text of an event: its name, its service, what is special about it, and its status.
func (m *drawing) eventLabel(c *Contract, e *Expected) string {
	label := e.Name + "<br>" + e.Service
	if e.Each {
		label += " · each item"
	}
	if e.Optional {
		label += " · optional"
	}
	if e.Pivot {
		label += " · pivot"
	}
	if m.s == nil {
		return label
	}
	for _, path := range m.eventPaths(c, e) {
		st := m.s.Steps[path]
		_, item := splitItem(path)
		label += "<br>" + strings.TrimSpace(item+" "+string(st.Status))
		if st.Attempt > 1 {
			label += ", attempt " + strconv.Itoa(st.Attempt)
		}
		if st.Reason != "" {
			label += ": " + strings.NewReplacer(`"`, "'", "\n", " ").Replace(st.Reason)
		}
	}
	return label
}

func (m *drawing) eventPaths(c *Contract, e *Expected) []string {
	return m.s.paths(func(st *StepState) bool { return st.Status != "" && c.Event(st.SentAs) == e })
}

// eventClass is the class of the first of an event's items that is not done.
func (m *drawing) eventClass(c *Contract, e *Expected) string {
	if m.s == nil {
		return ""
	}
	class := ""
	for _, path := range m.eventPaths(c, e) {
		if class = statusClass(m.s.Steps[path].Status); class != ":::done" {
			return class
		}
	}
	return class
}
