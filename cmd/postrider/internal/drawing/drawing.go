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
)

// Pen paints texts, if it is on.
type Pen bool

// Paint paints a text in a color; "" is none.
func (p Pen) Paint(color Color, text string) string {
	if !bool(p) || color == "" {
		return text
	}
	return "\x1b[" + string(color) + "m" + text + "\x1b[0m"
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

// Age formats a short duration.
func Age(d time.Duration) string {
	switch {
	case d <= 0:
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
