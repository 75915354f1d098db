package report

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// marker precedes what Update writes: "<!-- bench: drain -->" the table of a suite, "<!-- bench: targets 1 2 -->" that of the promises
// with these numbers, and "<!-- bench: machine -->" the line with the conditions of the run. An empty line is between them.
var marker = regexp.MustCompile(`^<!-- bench: ([a-z0-9 -]+) -->$`)

// runSize is the line after a table that tells how long its runs are.
var runSize = regexp.MustCompile(`^[0-9,]+ messages in a run\.$`)

// Update returns a page in Markdown with the figures of the report. Tables of suites that the report does not have, and lines of
// promises that it did not measure, stay as they are. The head of a suite's table selects its columns. A marker without a table, or with
// a column that the suite does not have, is an error.
func (r *Report) Update(page string) (string, error) {
	var out []string
	lines := strings.Split(page, "\n")
	for len(lines) > 0 {
		line := lines[0]
		out, lines = append(out, line), lines[1:]
		found := marker.FindStringSubmatch(line)
		if found == nil || len(lines) == 0 || lines[0] != "" {
			continue
		}
		out, lines = append(out, ""), lines[1:]
		what, numbers, _ := strings.Cut(found[1], " ")
		old := lines[:blockLength(lines)]
		block, err := old, error(nil)
		if s := r.Suite(what); s != nil {
			block, err = s.markdown(old)
		} else if what == "targets" {
			block, err = r.targets(strings.Fields(numbers), old)
		} else if what == "machine" {
			block = []string{r.conditions()}
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", line, err)
		}
		out, lines = append(out, block...), lines[len(old):]
		if s := r.Suite(what); s != nil && len(lines) > 1 && runSize.MatchString(lines[1]) {
			out, lines = append(out, "", Number(float64(s.Messages))+" messages in a run."), lines[2:]
		}
	}
	return strings.Join(out, "\n"), nil
}

// blockLength is the number of lines before the next empty one.
func blockLength(lines []string) int {
	if i := slices.Index(lines, ""); i >= 0 {
		return i
	}
	return len(lines)
}

// markdown writes the suite as a table with the columns of old.
func (s *Suite) markdown(old []string) ([]string, error) {
	if len(old) < 2 || !strings.HasPrefix(old[0], "|") {
		return nil, fmt.Errorf("no table follows: write its head, such as | | %s | min..max |", s.Unit)
	}
	table := old[:2:2]
	columns := tableCells(old[0])
	for _, row := range s.Rows {
		name := row.Name
		if row.Role == Ours {
			name = "**" + name + "**"
		} else if row.Role != Limit {
			name += " (" + string(row.Role) + ")"
		}
		cells := []string{name}
		for _, title := range columns[1:] {
			cell, ok := s.cell(row, title)
			if !ok {
				return nil, fmt.Errorf("%s has no column %q", s.Name, title)
			}
			cells = append(cells, cell)
		}
		table = append(table, tableRow(cells))
	}
	return table, nil
}

// cell is what a row has in a column; ok is false if there is no such column.
func (s *Suite) cell(r *Row, title string) (cell string, ok bool) {
	figure, measured := r.Figure(s.Figure)
	switch title {
	case s.Unit:
		if !measured {
			return "–", true
		}
		return Number(figure.Median), true
	case "min..max":
		if !measured || r.Role == Quoted {
			return "", true
		}
		return Number(figure.Min) + ".." + Number(figure.Max), true
	case "of limit":
		return strings.TrimSuffix(s.ratioCell(r, r.Limit), "×"), true
	case "of peer":
		return strings.TrimSuffix(s.ratioCell(r, r.Peer), "×"), true
	}
	i := slices.IndexFunc(s.Also, func(c Column) bool { return c.Title == title })
	if i < 0 {
		return "", false
	}
	if f, ok := r.Figure(s.Also[i].Figure); ok {
		cell = Number(f.Median)
	}
	return cell, true
}

// targets writes the promises with these numbers as a table. Those that were not measured have the lines of old.
func (r *Report) targets(numbers, old []string) ([]string, error) {
	if len(old) < 2 || !strings.HasPrefix(old[0], "|") {
		return nil, errors.New("no table follows: write its head, such as | | | measured | target | |")
	}
	table := old[:2:2]
	for _, v := range r.Promises {
		if !slices.Contains(numbers, fmt.Sprint(v.Number)) {
			continue
		}
		line := v.markdown()
		if i := slices.IndexFunc(old, func(l string) bool { return strings.HasPrefix(l, fmt.Sprintf("| %d | %s |", v.Number, v.Text)) }); v.Found == nil && i >= 0 {
			line = old[i]
		}
		table = append(table, line)
	}
	return table, nil
}

func (v Outcome) markdown() string {
	found, outcome, bound := "", "not run", "≥ "+Number(v.AtLeast)
	if v.AtMost != 0 {
		bound = "≤ " + Number(v.AtMost)
	}
	if f := v.Found; f != nil {
		found, outcome = Number(f.Median), "**missed**"
		if f.Min != f.Max {
			found += fmt.Sprintf(" (%s..%s)", Number(f.Min), Number(f.Max))
		}
		if v.Kept {
			outcome = "holds"
		}
	}
	return tableRow([]string{fmt.Sprint(v.Number), v.Text, found, bound, outcome})
}

// conditions tells in one line what the figures were measured with.
func (r *Report) conditions() string {
	var parts, settings []string
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		parts = append(parts, name+" "+r.Versions[name])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Settings)) {
		settings = append(settings, fmt.Sprintf("`%s=%s`", strings.TrimPrefix(name, "PostgreSQL "), r.Settings[name]))
	}
	line := fmt.Sprintf("Conditions of the figures on this page: %s, %d cores, %d GiB; %s, %s; %s; %s, medians of %d rounds.", r.Machine.Processor, r.Machine.Cores,
		(r.Machine.MemoryMiB+512)/1024, r.Machine.System, r.Machine.Go, strings.Join(parts, ", "), r.Started.Format("2006-01-02"), r.Rounds)
	if len(settings) > 0 {
		line += " PostgreSQL: " + strings.Join(settings, ", ") + "."
	}
	return line
}

// tableCells are the cells of a line of a table.
func tableCells(line string) []string {
	cells := strings.Split(strings.Trim(line, "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

func tableRow(cells []string) string { return "| " + strings.Join(cells, " | ") + " |" }
