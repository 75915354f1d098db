package report

import (
	"fmt"
	"io"
)

// Promise is a figure that must be met.
type Promise struct {
	// Number is its number in docs/performance.md; a promise of several figures has several entries.
	Number int
	Text   string
	// Suite and Row select the figure: the ratio to the row With of the same suite or, if With is empty, Figure itself.
	Suite, Row, With string
	Figure           string
	// The figure must be at least AtLeast, if not 0, and at most AtMost, if not 0.
	AtLeast, AtMost float64
}

// Outcome is the result for a promise.
type Outcome struct {
	Number  int     `json:"number"`
	Text    string  `json:"text"`
	AtLeast float64 `json:"at_least,omitempty"`
	AtMost  float64 `json:"at_most,omitempty"`
	// Found is nil if the run did not measure it.
	Found *Summary `json:"found"`
	Kept  bool     `json:"kept"`
}

// Judge looks up every promise in the report.
func (r *Report) Judge(promises []Promise) []Outcome {
	var outcomes []Outcome
	for _, p := range promises {
		v := Outcome{Number: p.Number, Text: p.Text, AtLeast: p.AtLeast, AtMost: p.AtMost}
		if found, ok := r.lookUp(p); ok {
			v.Found = &found
			v.Kept = (p.AtLeast == 0 || found.Median >= p.AtLeast) && (p.AtMost == 0 || found.Median <= p.AtMost)
		}
		outcomes = append(outcomes, v)
	}
	return outcomes
}

func (r *Report) lookUp(p Promise) (Summary, bool) {
	s := r.Suite(p.Suite)
	if s == nil {
		return Summary{}, false
	}
	row := s.Row(p.Row)
	if row == nil {
		return Summary{}, false
	}
	if p.With != "" {
		return s.Ratio(row, p.With)
	}
	return row.Figure(p.Figure)
}

// String is the verdict in one line, starting with PASS, MISS, or "not run".
func (v Outcome) String() string {
	bound := fmt.Sprintf("at least %s", Number(v.AtLeast))
	if v.AtMost != 0 {
		bound = fmt.Sprintf("at most %s", Number(v.AtMost))
	}
	if v.Found == nil {
		return fmt.Sprintf("not run  %d. %s: %s", v.Number, v.Text, bound)
	}
	word := "MISS"
	if v.Kept {
		word = "PASS"
	}
	return fmt.Sprintf("%-7s  %d. %s: %s (%s..%s), %s", word, v.Number, v.Text, Number(v.Found.Median), Number(v.Found.Min),
		Number(v.Found.Max), bound)
}

func printOutcomes(w io.Writer, outcomes []Outcome) error {
	t := &printer{w: w}
	for _, v := range outcomes {
		t.line("%s", v)
	}
	return t.err
}
