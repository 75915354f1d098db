package drawing_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/drawing"
)

func TestWrap(t *testing.T) {
	t.Parallel()
	got := strings.Join(drawing.Wrap("one two three four", 10), "|")
	if got != "one two|three four" {
		t.Errorf("wrapped to %q", got)
	}
}

func TestHang(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		" 1  a   b":                       " 1  a   b",
		" 1  first second  third":         " 1  first second|    third",
		"    ok  0123456789abcdefghijklm": "    ok|    0123456789abcdef|    ghijklm",
	} {
		if got := strings.Join(drawing.Hang(text, 20, 4), "|"); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestColumns(t *testing.T) {
	t.Parallel()
	groups := []drawing.Group{
		{Heading: "ORDERS", Cells: []drawing.Cell{{Label: "open", Value: "1,234"}, {Label: "late", Value: "7", Color: drawing.Yellow}}},
		{Heading: "LEDGER", Outcome: drawing.Green.Part("exact"), Cells: []drawing.Cell{{Label: "sold", Value: "3"}}},
	}
	for width, want := range map[int]string{
		60: "ORDERS                      LEDGER            exact\n" +
			"open              1,234     sold                  3\n" +
			"late                  7                            ",
		30: "ORDERS                 \nopen              1,234\nlate                  7\nLEDGER            exact\nsold                  3",
	} {
		var got []string
		for _, l := range drawing.Columns(width, groups...) {
			got = append(got, l.Fit(false, width))
		}
		if text := strings.Join(got, "\n"); text != want {
			t.Errorf("width %d:\n%s\nwant\n%s", width, text, want)
		}
	}
	if l := drawing.Columns(60, groups...)[2].Fit(true, 60); !strings.HasPrefix(l, "\x1b[33mlate") {
		t.Errorf("colors: %q", l)
	}
}
