package docs_test

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestFigures: what other pages say about speed and size is what docs/performance.md has measured, within a fifth.
func TestFigures(t *testing.T) {
	t.Parallel()
	performance := read(t, "docs/performance.md")
	for _, c := range []struct{ page, says, measured string }{
		{"docs/compare/river.md", `(\d+) times River's rate to a handler`, `drain to a batch handler, to River \| ([\d.]+)`},
		{"docs/compare/river.md", `(\d+) times to JetStream`, `drain to JetStream, to River \| ([\d.]+)`},
		{"docs/operations/sizing.md", `delivers some ([\d,]+) messages a second to a batch handler`, `(?s)drain\.svg.*?Postrider, 10,000 keys\*\* \| ([\d,]+)`},
		{"docs/operations/sizing.md", `and some ([\d,]+) to JetStream`, `(?s)jetstream\.svg.*?Postrider, 10,000 keys\*\* \| ([\d,]+)`},
		{"docs/operations/sizing.md", `memory of a relay \| (\d+) MiB`, `peak memory of postrider relay[^|]*\| ([\d.]+)`},
		{"docs/operations/sizing.md", `Idle, ([\d.]+)% of a core`, `an idle relay, % of a core \| ([\d.]+)`},
		{"docs/operations/sizing.md", `(\d+) µs a message to a handler`, `deliver, backlog \| [^|]* \| ([\d.]+) µs`},
		{"docs/operations/sizing.md", `and (\d+) µs to JetStream`, `deliver to JetStream, backlog \| [^|]* \| ([\d.]+) µs`},
		{"docs/operations/sizing.md", `only one: (\d+) µs at 1,000 a second`, `deliver, at 1,000 per second \| [^|]* \| ([\d.]+) µs`},
	} {
		said, measured := figure(t, read(t, c.page), c.says), figure(t, performance, c.measured)
		if math.Abs(said-measured) > measured/5 {
			t.Errorf("%s says %v (%s), docs/performance.md has measured %v", c.page, said, c.says, measured)
		}
	}
}

// figure is the number that an expression finds in a page.
func figure(t *testing.T, page, expression string) float64 {
	t.Helper()
	found := regexp.MustCompile(expression).FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("%s is not in the page", expression)
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(found[1], ",", ""), 64)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return n
}
