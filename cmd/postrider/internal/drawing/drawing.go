// Package drawing formats what the demos show on a terminal: colors, numbers, charts and lines that fit.
package drawing

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// Color is a color or style of a terminal.
type Color string

// The colors.
const (
	Red    Color = "31"
	Green  Color = "32"
	Yellow Color = "33"
	Dim    Color = "2"
	Bold   Color = "1"
	Plain  Color = ""
)

// Pen paints texts, if it is on.
type Pen bool

// Paint paints a text in a color.
func (p Pen) Paint(color Color, text string) string {
	if !bool(p) || color == Plain {
		return text
	}
	return "\x1b[" + string(color) + "m" + text + "\x1b[0m"
}

// Line is a line of a dashboard: parts with their colors.
type Line []Part

// Part is a text in a color.
type Part struct {
	Color Color
	Text  string
}

// Part is a text in the color.
func (c Color) Part(text string) Part { return Part{c, text} }

// Fit formats a line that is at most width columns wide.
func (l Line) Fit(pen Pen, width int) string {
	var b strings.Builder
	for _, p := range l {
		text := Cut(p.Text, width)
		width -= utf8.RuneCountInString(text)
		b.WriteString(pen.Paint(p.Color, text))
	}
	return b.String()
}

// Group is a column of figures under a heading; its outcome stands at the end of the heading.
type Group struct {
	Heading string
	Outcome Part
	Cells   []Cell
}

// Cell is one figure.
type Cell struct {
	Label, Value string
	Color        Color
}

// groupWidth is the number of columns of a group, groupGap that between two: three of them fill 79 columns.
const (
	groupWidth = 23
	groupGap   = 5
)

// Columns returns groups side by side, or one below the other if a line has fewer columns than that needs.
func Columns(width int, groups ...Group) (lines []Line) {
	if width < len(groups)*(groupWidth+groupGap)-groupGap {
		for _, g := range groups {
			for row := range len(g.Cells) + 1 {
				lines = append(lines, g.line(row))
			}
		}
		return lines
	}
	rows := 0
	for _, g := range groups {
		rows = max(rows, len(g.Cells)+1)
	}
	for row := range rows {
		var l Line
		for _, g := range groups {
			l = append(append(l, g.line(row)...), Plain.Part(strings.Repeat(" ", groupGap)))
		}
		lines = append(lines, l[:len(l)-1])
	}
	return lines
}

// line is the heading of a group, a figure, or, below the last one, nothing: each as wide as the group.
func (g Group) line(row int) Line {
	switch {
	case row == 0:
		outcome := fmt.Sprintf("%*s", groupWidth-utf8.RuneCountInString(g.Heading), g.Outcome.Text)
		return Line{{Bold, g.Heading}, {g.Outcome.Color, outcome}}
	case row > len(g.Cells):
		return Line{{"", strings.Repeat(" ", groupWidth)}}
	default:
		c := g.Cells[row-1]
		return Line{{c.Color, c.Label + fmt.Sprintf("%*s", groupWidth-utf8.RuneCountInString(c.Label), c.Value)}}
	}
}

// Chart draws values as bars. Heights are square roots, so that one high value does not flatten the rest.
func Chart(values []float64) string {
	top := 1.0
	for _, v := range values {
		top = max(top, v)
	}
	bars := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, v := range values {
		b.WriteRune(bars[int(math.Sqrt(max(v, 0)/top)*float64(len(bars)-1)+0.5)])
	}
	return b.String()
}

// Cut shortens a text to width columns, counting each character as one.
func Cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(width, 0)])
}

// Wrap breaks a text into lines of at most width columns.
func Wrap(text string, width int) []string {
	width = max(width, 10)
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// Hang breaks a text into lines of at most width columns, all but the first indented. It keeps the spaces between columns.
func Hang(text string, width, indent int) (lines []string) {
	rest := []rune(text)
	for width > indent && len(rest) > width {
		at := width
		for at > indent && rest[at] != ' ' {
			at--
		}
		if at <= indent { // a word that does not fit
			at = width
		}
		lines = append(lines, strings.TrimRight(string(rest[:at]), " "))
		rest = []rune(strings.Repeat(" ", indent) + strings.TrimLeft(string(rest[at:]), " "))
	}
	return append(lines, string(rest))
}

// Age formats a short duration.
func Age(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "0"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	default:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
}

// Number formats a number with thousands separators.
func Number[T ~int | ~int64](n T) string {
	text := fmt.Sprint(int64(n))
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Plural formats a number of things.
func Plural[T ~int | ~int64](n T, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Number(n) + " " + noun + "s"
}
