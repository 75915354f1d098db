package scenariotest

import (
	"slices"
	"time"
)

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

// await waits for a condition.
func (w *world[Tx]) await(what string, holds func() bool) {
	w.Helper()
	for begun := time.Now(); !holds(); rest(begun) {
		if time.Since(begun) > patience {
			w.Fatalf("waited in vain for %s", what)
		}
	}
}

// rest waits between two looks at a condition. Most looks read the database: the longer the wait, the fewer there are.
func rest(begun time.Time) {
	time.Sleep(min(max(time.Since(begun)/8, 5*time.Millisecond), 100*time.Millisecond))
}

// records waits until an entry is in a history this often.
func (w *world[Tx]) records(id, entry string, times int) {
	w.Helper()
	w.await(entry, func() bool {
		return len(slices.DeleteFunc(w.history(id), func(e string) bool { return e != entry })) >= times
	})
	w.has(id, entry, times)
}

// hasSome checks that an entry is in a history at least this often.
func (w *world[Tx]) hasSome(id, entry string, times int) {
	w.Helper()
	if n := len(slices.DeleteFunc(w.history(id), func(e string) bool { return e != entry })); n < times {
		w.Errorf("history has %q %d times, want %d or more:\n%s", entry, n, times, w.historyText(id))
	}
}
