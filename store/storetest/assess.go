package storetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/postrider/postrider/store"
)

// verdict checks the result of a history against the guarantees.
func (m *model) assess() {
	died, discarded := make(map[string]bool), make(map[string]bool)
	for _, l := range m.deadLetters(everyDead) {
		died[l.Message.ID] = true
		if l.State == store.DeadDiscarded {
			discarded[l.Message.ID] = true
		}
	}
	taken, tried := make(map[string]int), make(map[string]int) // index of the first entry in the log
	for at, n := range m.dest.log.all() {
		if !m.committed[n.id] {
			m.t.Errorf("not atomic: message %s was handed over, but its transaction was rolled back", n.id)
		}
		of := tried
		switch n.by {
		case "taken":
			of = taken
		case "dead":
			died[n.id] = true
			continue
		}
		if _, again := of[n.id]; !again {
			of[n.id] = at
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.committed)) {
		if _, ok := taken[id]; !ok && !discarded[id] {
			m.t.Errorf("lost: message %s was committed, and neither delivered nor given up by an operator", id)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.order)) {
		// A dead-lettered message has left the order of its key, even if it was redriven, unless the key waited for it.
		order := slices.DeleteFunc(slices.Clone(m.order[key]), func(id string) bool { return discarded[id] || died[id] && !m.strict })
		for i := 1; i < len(order); i++ {
			before, after := order[i-1], order[i]
			if tried[after] < taken[before] {
				m.t.Errorf("out of order: message %s was tried before %s, which was published before it, had been taken\n%s",
					after, before, m.story(key))
			}
		}
	}
}

// story returns what happened to the messages of a key.
func (m *model) story(key string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "published with key %s: %s\n", key, strings.Join(m.order[key], " "))
	for _, n := range m.dest.log.all() {
		if n.key == key {
			fmt.Fprintf(&b, "%s %s %s, attempt %d\n", n.at.Format("15:04:05.000000"), n.id, n.by, n.attempt)
		}
	}
	for _, l := range m.deadLetters(everyDead) {
		if l.Message.Key == key {
			fmt.Fprintf(&b, "%s %s died: %s: %.100s (%s)\n", l.DiedAt.Format("15:04:05.000000"), l.Message.ID, l.Reason, l.Cause, l.State)
		}
	}
	return b.String()
}

// leftovers returns what is still left to do.
func (m *model) leftovers() string {
	var b strings.Builder
	st := m.status("r")
	fmt.Fprintf(&b, "left over: backlog %d, parked %d, held %d, dead %d\n", st.Backlog.N, st.Parked.N, st.Held.N, st.Dead.N)
	for _, h := range m.held("r") {
		fmt.Fprintf(&b, "held: %+v\n%s", h, m.story(h.Key))
	}
	return b.String()
}
