package markdown_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/admin/web/internal/markdown"
)

// written is what a page says, in short.
func written(p markdown.Page) string {
	var out []string
	text := func(spans []markdown.Span) (out string) {
		for _, s := range spans {
			mark := ""
			for name, set := range map[string]bool{"code": s.Code, "bold": s.Bold, "italic": s.Italic, "block": s.Block, s.Link: s.Link != ""} {
				if set {
					mark += "<" + name + ">"
				}
			}
			out += mark + s.Text
		}
		return out
	}
	for _, b := range p.Blocks {
		line := string(b.Kind) + " " + b.ID + b.Text + text(b.Spans)
		for _, item := range b.Items {
			line += "; " + text(item)
		}
		for _, cell := range b.Head {
			line += "| " + text(cell)
		}
		for _, row := range b.Rows {
			line += fmt.Sprintf(" (%s)", row.ID)
			for _, cell := range row.Cells {
				line += "| " + text(cell)
			}
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

func TestParse(t *testing.T) {
	t.Parallel()
	p := markdown.Parse("# The `title`\n\nA text\nof *two* lines with `code *x*` and [a `link`](b.md#c), **bold**.\n\n![x](y.png)\n\n## What it is?\n" +
		"- one\n  more\n- two\n\n1. first\n2. second\n\n   ```sh\n   ls\n   ```\n\n3. third\n\n```sh\n# not a title\n\npostrider\n```\n\n| a | b |\n|---|---|\n| `x.y` | `c|d` \\| <b> |\n" +
		"A text: 2 * 3 * 4 and a_b.\n```\nopen")
	if p.Title != "The title" {
		t.Errorf("title %q", p.Title)
	}
	want := `p A text of <italic>two lines with <code>code *x* and <b.md#c>a <code><b.md#c>link, <bold>bold.
h2 what-it-isWhat it is?
ul ; one more; two
ol ; first; second<block>ls; third
code # not a title

postrider
table | a| b (x.y)| <code>x.y| <code>c|d | <b>
p A text: 2 * 3 * 4 and a_b.
code open`
	if got := strings.ReplaceAll(written(p), "<b.md#c><code>", "<code><b.md#c>"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
