package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one error in a configuration.
type Fault struct {
	// Origin is the file or the environment variable.
	Origin string
	// Line and Column count from 1; 0 for an error outside a file.
	Line, Column int
	// Path is the key, e.g. relays[0].concurrency.
	Path string
	// Text says what is wrong and what is allowed.
	Text string
}

func (f Fault) String() string {
	where := f.Origin
	if f.Line > 0 {
		where = fmt.Sprintf("%s:%d:%d", f.Origin, f.Line, f.Column)
	}
	if f.Path == "" {
		return where + ": " + f.Text
	}
	return where + ": " + f.Path + ": " + f.Text
}

// Error lists every error of a configuration, those of the file first, in order.
type Error struct{ Faults []Fault }

func (e *Error) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// orNil returns e with its errors sorted, nil if there are none.
func (e *Error) orNil() error {
	if len(e.Faults) == 0 {
		return nil
	}
	slices.SortStableFunc(e.Faults, func(a, b Fault) int {
		if (a.Line == 0) != (b.Line == 0) {
			return cmp.Compare(b.Line, a.Line)
		}
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return e
}

// didYouMean suggests the allowed word that is closest to text.
func didYouMean(text string, allowed []string) string {
	if word := Nearest(text, allowed); word != "" {
		return fmt.Sprintf(" (did you mean %s?)", word)
	}
	return ""
}

// Nearest returns the allowed word that is closest to text, "" if none is close.
func Nearest(text string, allowed []string) string {
	best, bestDistance := "", 3
	for _, word := range allowed {
		if d := distance(strings.ToLower(text), word); d < bestDistance {
			best, bestDistance = word, d
		}
	}
	return best
}

// distance is the number of letters to insert, remove or replace to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
