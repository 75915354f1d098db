package scenariotest

import "slices"

func (w *world[Tx]) historyText(id string) string {
	text := ""
	for _, entry := range w.history(id) {
		text += "  " + entry + "\n"
	}
	return text
}

// has checks how often an entry is in a history.
func (w *world[Tx]) has(id, entry string, times int) {
	w.Helper()
	n := 0
	for _, e := range w.history(id) {
		if e == entry {
			n++
		}
	}
	if n != times {
		w.Errorf("history has %q %d times, want %d:\n%s", entry, n, times, w.historyText(id))
	}
}

// hasSome checks that an entry is in a history at least this often.
func (w *world[Tx]) hasSome(id, entry string, times int) {
	w.Helper()
	if n := len(slices.DeleteFunc(w.history(id), func(e string) bool { return e != entry })); n < times {
		w.Errorf("history has %q %d times, want %d or more:\n%s", entry, n, times, w.historyText(id))
	}
}
