package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/postrider/postrider/relay"
)

// table writes rows in aligned columns. Long tables are aligned in pieces, so that they need not fit into memory.
type table struct {
	w    *tabwriter.Writer
	rows int
}

// tablePiece is the number of rows that are aligned together.
const tablePiece = 1000

func newTable(out io.Writer, columns ...string) *table {
	t := &table{w: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	t.row(anys(columns)...)
	return t
}

func (t *table) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = printable(fmt.Sprint(c))
	}
	fmt.Fprintln(t.w, strings.TrimRight(strings.Join(texts, "\t"), "\t"))
	if t.rows++; t.rows%tablePiece == 0 {
		_ = t.w.Flush() // a closed output shows in the last flush too
	}
}

// flush writes the table out.
func (t *table) flush() error { return t.w.Flush() }

func anys(texts []string) []any {
	out := make([]any, len(texts))
	for i, s := range texts {
		out[i] = s
	}
	return out
}

// printable keeps external text (keys, causes) from moving a terminal's cursor or breaking a table.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return '·'
		default:
			return r
		}
	}, text)
}

// printableLines is printable for multi-line text.
func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

// shorten cuts a text to n characters.
func shorten(text string, n int) string {
	runes := []rune(text)
	if len(runes) <= n {
		return text
	}
	return string(runes[:n-1]) + "…"
}

// ago formats a duration for people: two units at most, "-" for zero.
func ago(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < 0:
		return "-" + ago(-d)
	case d < time.Millisecond:
		return "<1ms"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	default:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
}

// moment formats a time, "-" for none.
func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// count formats a count, with a plus when there are more.
func count(c relay.Count) string {
	if c.AtLeast {
		return number(c.N) + "+"
	}
	return number(c.N)
}

// number formats a number with thousands separators.
func number[T ~int | ~int64](n T) string {
	text := fmt.Sprint(int64(n))
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// plural formats a number and its noun.
func plural[T ~int | ~int64](n T, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return number(n) + " " + noun + "s"
}

// pluralOf is plural for a count, with a plus when there are more.
func pluralOf(c relay.Count, noun string) string {
	if c.AtLeast {
		return count(c) + " " + noun + "s"
	}
	return plural(c.N, noun)
}

// printJSON writes a value as indented JSON.
func printJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// printLine writes a value as one line of JSON.
func printLine(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
