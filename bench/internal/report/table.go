package report

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Print writes the report as text.
func (r *Report) Print(w io.Writer) error {
	t := &printer{w: w}
	t.line("%s", r.Machine)
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		t.line("%s %s", name, r.Versions[name])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Settings)) {
		t.line("%s: %s", name, r.Settings[name])
	}
	t.line("median (min..max) of %d rounds, rows in turn; ratios are medians over the rounds", r.Rounds)
	for _, s := range r.Suites {
		t.line("")
		if t.err == nil {
			t.err = s.Print(w)
		}
	}
	if len(r.Promises) > 0 {
		t.line("")
		if t.err == nil {
			t.err = printOutcomes(w, r.Promises)
		}
	}
	return t.err
}

// Print writes the suite as a table.
func (s *Suite) Print(w io.Writer) error {
	t := &printer{w: w}
	better := "more is better"
	if s.Lower {
		better = "less is better"
	}
	t.line("%s — %s (%s, %s; %s messages)", s.Name, s.Title, s.Unit, better, Number(float64(s.Messages)))
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := []string{"", s.Unit, "min..max", "of limit", "of peer"}
	for _, c := range s.Also {
		head = append(head, c.Title)
	}
	cells := [][]string{head}
	for _, row := range s.Rows {
		cells = append(cells, s.cells(row))
	}
	width := 0
	for _, c := range cells {
		width = max(width, len([]rune(c[0])))
	}
	for _, c := range cells { // names are left-aligned, figures right-aligned
		pad := strings.Repeat(" ", width-len([]rune(c[0])))
		if _, err := fmt.Fprintf(tab, "  %s%s\t%s\t\n", c[0], pad, strings.Join(c[1:], "\t")); err != nil {
			return err
		}
	}
	if t.err != nil {
		return t.err
	}
	return tab.Flush()
}

func (s *Suite) cells(r *Row) []string {
	name := r.Name
	if r.Role != Ours {
		name += " [" + string(r.Role) + "]"
	}
	cells := []string{name, "–", "", "", ""}
	if f, ok := r.Figure(s.Figure); ok {
		cells = []string{name, Number(f.Median), Number(f.Min) + ".." + Number(f.Max), s.ratioCell(r, r.Limit), s.ratioCell(r, r.Peer)}
	}
	for _, c := range s.Also {
		cell := "–"
		if f, ok := r.Figure(c.Figure); ok {
			cell = Number(f.Median)
		}
		cells = append(cells, cell)
	}
	return cells
}

func (s *Suite) ratioCell(r *Row, with string) string {
	ratio, ok := s.Ratio(r, with)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%.2f×", ratio.Median)
}

// Number formats a figure for people: three significant digits below 1,000, whole numbers with separators above.
func Number(v float64) string {
	if math.Abs(v) < 1000 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	digits := strconv.FormatFloat(math.Round(v), 'f', -1, 64)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return sign + b.String()
}

// printer writes lines until one fails.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}
