package output

import (
	"strings"
	"testing"
)

func TestPayloadsAreShownAsWhatTheyAre(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"a":[1]}`:                  "  {\n    \"a\": [\n      1\n    ]\n  }",
		"plain\ntext":                "  plain\n  text",
		"\xff\x00":                   "  00000000  ff 00 ",
		strings.Repeat("ä", 3000):    "… and 1,904 bytes more (--payload writes all)",
		"\x1b" + `]0;title` + "\x07": "  ·]0;title·",
	} {
		if got := Payload([]byte(payload)); !strings.Contains(got, want) {
			t.Errorf("%q is shown as %q, want %q", payload, got, want)
		}
	}
}
