package demo

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// The colors.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	dim    = "2"
	bold   = "1"
)

func (s *screen) paint(color, text string) string {
	if !s.color || color == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// chartWidth is the number of columns of the delivery chart.
const chartWidth = 40

// cell is one figure of the dashboard.
type cell struct{ label, value, color string }

// dashboard returns the dashboard's lines for figures, none wider than the terminal.
func (s *screen) dashboard(f figures) []string {
	cells := s.cells(f)
	const cellWidth = 27
	columns := max(1, (s.width-1)/cellWidth)
	lines := []string{"", s.paint(bold, cut(s.title, s.width-1)), cut(s.progress(f), s.width-1)}
	for i := 0; i < len(cells); i += columns {
		var line strings.Builder
		for _, c := range cells[i:min(i+columns, len(cells))] {
			text := fmt.Sprintf("%-18s %7s ", c.label, c.value)
			line.WriteString(s.paint(c.color, cut(text, min(cellWidth, s.width-1))))
		}
		lines = append(lines, line.String())
	}
	if s.width > chartWidth+24 {
		lines = append(lines, "arriving            "+s.paint(dim, chart(s.rates)))
	}
	if f.err != nil {
		lines = append(lines, s.paint(red, cut("figures are missing: "+f.err.Error(), s.width-1)))
	}
	return lines
}

// progress is the line with the time and the current failures.
func (s *screen) progress(f figures) string {
	broker, work := "broker up", "relay up"
	if f.brokerAway {
		broker = "BROKER AWAY"
	}
	if f.relayDown {
		work = "RELAY DOWN"
	}
	return fmt.Sprintf("%.1f s of %.0f s · %s · %s · %s", f.elapsed.Seconds(), s.length.Seconds(), broker, work, plural(f.orders, "order"))
}

// cells are the figures in reading order: the flow, the failures, the guarantees.
func (s *screen) cells(f figures) []cell {
	return []cell{
		{"committed", number(f.committed), ""},
		{"delivered", number(f.Received), ""},
		{"age", shortAge(f.status.Age), warn(f.status.Age > time.Second)},
		{"held keys", number(f.status.Held.N), warn(f.status.Held.N > 0)},
		{"parked", number(f.status.Parked.N), warn(f.status.Parked.N > 0)},
		{"dead letters", number(f.status.Dead.N), warn(f.status.Dead.N > 0)},
		{"lost", number(f.Missing), judged(f.Missing)},
		{"order violations", number(f.Disorder), judged(f.Disorder)},
		{"duplicates", number(f.Duplicates), ""},
		{"rolled back", number(f.rolledBack), ""},
		{"of those, appeared", number(f.Appeared), judged(f.Appeared)},
	}
}

func warn(yes bool) string {
	if yes {
		return yellow
	}
	return ""
}

func judged(faults int64) string {
	if faults > 0 {
		return red
	}
	return green
}

// chart draws rates as bars, the newest on the right. Heights are square roots, so that a burst after an outage does not
// flatten the rest.
func chart(rates []float64) string {
	top := 1.0
	for _, r := range rates {
		top = max(top, r)
	}
	bars := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, r := range rates {
		b.WriteRune(bars[int(math.Sqrt(max(r, 0)/top)*float64(len(bars)-1)+0.5)])
	}
	return b.String()
}

// cut shortens a text to width columns, counting each character as one.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(width, 0)])
}

// wrap breaks a text into lines of at most width columns.
func wrap(text string, width int) []string {
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

func shortAge(d time.Duration) string {
	switch {
	case d <= 0:
		return "0"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	default:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
}

// number formats a number with thousands separators.
func number[T ~int | ~int64](n T) string {
	text := fmt.Sprint(int64(n))
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func plural[T ~int | ~int64](n T, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return number(n) + " " + noun + "s"
}
