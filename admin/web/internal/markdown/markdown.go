// Package markdown reads as much of Markdown as the docs of this project use, into blocks that templates write: nothing in it is markup.
package markdown

import (
	"regexp"
	"strings"
	"unicode"
)

// Page is a document.
type Page struct {
	Title  string
	Blocks []Block
}

// Kind says what a block is.
type Kind string

// The kinds of blocks.
const (
	Heading    Kind = "h2"
	Subheading Kind = "h3"
	Paragraph  Kind = "p"
	Code       Kind = "code"
	List       Kind = "ul"
	Numbered   Kind = "ol"
	Table      Kind = "table"
)

// Block is a part of a page; Kind says which of its fields are used.
type Block struct {
	Kind Kind
	// ID is that of a heading, for links.
	ID string
	// Text is the content of Code.
	Text  string
	Spans []Span
	// Items are those of lists, Head and Rows those of tables.
	Items [][]Span
	Head  [][]Span
	Rows  []Row
}

// Row is a row of a table. Its ID is made from its first cell.
type Row struct {
	ID    string
	Cells [][]Span
}

// Span is a part of a text.
type Span struct {
	Text               string
	Code, Bold, Italic bool
	// Block: it is code with lines of its own, in an item of a list.
	Block bool
	// Link is its target, as the document has it.
	Link string
}

// Slug is the ID of a heading, as GitHub makes it, and of a row.
func Slug(text string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		switch {
		case unicode.In(r, unicode.L, unicode.Nd), r == '-', r == '_', r == '.':
			b.WriteRune(r)
		case r == ' ':
			b.WriteByte('-')
		}
	}
	return b.String()
}

var (
	item     = regexp.MustCompile(`^(?:[-*]|\d+\.) +(.*)$`)
	numbered = regexp.MustCompile(`^\d+\. `)
	heading  = regexp.MustCompile(`^(#{1,6}) +(.*)$`)
	image    = regexp.MustCompile(`^!\[[^\]]*\]\([^)]*\)$`)
	rule     = regexp.MustCompile(`^\|[-:| ]+\|$`)
)

// Parse reads a document. Images are left out.
func Parse(text string) (p Page) {
	lines := strings.Split(text, "\n")
	for len(lines) > 0 {
		line := lines[0]
		m := heading.FindStringSubmatch(line)
		switch {
		case strings.TrimSpace(line) == "", image.MatchString(line):
			lines = lines[1:]
		case m != nil && len(m[1]) == 1:
			p.Title, lines = Plain(spans(m[2])), lines[1:]
		case m != nil:
			b := Block{Kind: Heading, Spans: spans(m[2])}
			if len(m[1]) > 2 {
				b.Kind = Subheading
			}
			b.ID, lines = strings.ReplaceAll(Slug(Plain(b.Spans)), ".", ""), lines[1:]
			p.Blocks = append(p.Blocks, b)
		case strings.HasPrefix(line, "```"):
			n := 1
			for n < len(lines) && lines[n] != "```" {
				n++
			}
			p.Blocks = append(p.Blocks, Block{Kind: Code, Text: strings.Join(lines[1:n], "\n")})
			lines = lines[min(n+1, len(lines)):]
		default:
			n := paragraph(lines)
			p.Blocks = append(p.Blocks, block(lines[:n]))
			lines = lines[n:]
		}
	}
	p.unique()
	return p
}

// unique removes the IDs of rows that something before them has; headings come first.
func (p *Page) unique() {
	used := map[string]bool{}
	for _, b := range p.Blocks {
		used[b.ID] = true
	}
	for _, b := range p.Blocks {
		for n := range b.Rows {
			if id := b.Rows[n].ID; used[id] {
				b.Rows[n].ID = ""
			} else {
				used[id] = true
			}
		}
	}
}

// paragraph is how many lines belong together. A list continues after an empty line if another item follows.
func paragraph(lines []string) int {
	isList := item.MatchString(lines[0])
	for n, line := range lines {
		switch {
		case strings.HasPrefix(line, "```"), n > 0 && heading.MatchString(line):
			return n
		case strings.TrimSpace(line) == "":
			if !isList || n+1 == len(lines) || !belongs(lines[n+1], lines[0]) {
				return n
			}
		case n > 0 && !isList && item.MatchString(line):
			return n
		case n > 0 && (line[0] == '|') != (lines[0][0] == '|'):
			return n
		}
	}
	return len(lines)
}

// belongs reports whether a line after an empty one belongs to the list that begins with another line.
func belongs(line, first string) bool {
	return strings.HasPrefix(line, "   ") || item.MatchString(line) && numbered.MatchString(line) == numbered.MatchString(first)
}

// block is a table, a list or a paragraph.
func block(lines []string) Block {
	if lines[0][0] == '|' {
		return table(lines)
	}
	if !item.MatchString(lines[0]) {
		return Block{Kind: Paragraph, Spans: spans(strings.Join(lines, " "))}
	}
	b := Block{Kind: List}
	if numbered.MatchString(lines[0]) {
		b.Kind = Numbered
	}
	var text, code []string
	inCode := false
	end := func() {
		if last := len(b.Items) - 1; last >= 0 {
			b.Items[last] = append(b.Items[last], spans(strings.Join(text, " "))...)
		}
		text = nil
	}
	for _, line := range lines {
		trimmed := strings.TrimSpace(line)
		m := item.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(trimmed, "```") && inCode:
			last := len(b.Items) - 1
			b.Items[last] = append(b.Items[last], Span{Text: strings.Join(code, "\n"), Block: true})
			inCode, code = false, nil
		case strings.HasPrefix(trimmed, "```"):
			end()
			inCode = true
		case inCode:
			code = append(code, strings.TrimPrefix(line, "   "))
		case m != nil:
			end()
			b.Items, text = append(b.Items, nil), []string{m[1]}
		case trimmed != "":
			text = append(text, trimmed)
		}
	}
	end()
	return b
}

func table(lines []string) Block {
	b := Block{Kind: Table}
	for n, line := range lines {
		if rule.MatchString(line) {
			continue
		}
		cells := cells(line)
		if n == 0 {
			b.Head = cells
			continue
		}
		b.Rows = append(b.Rows, Row{Slug(Plain(cells[0])), cells})
	}
	return b
}

// cells splits a row at the bars that are not in code.
func cells(line string) (out [][]Span) {
	line = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "|"), "|")
	code, from := false, 0
	for i := 0; i < len(line); i++ {
		switch {
		case line[i] == '`':
			code = !code
		case line[i] == '|' && !code && (i == 0 || line[i-1] != '\\'):
			out = append(out, spans(strings.TrimSpace(line[from:i])))
			from = i + 1
		}
	}
	return append(out, spans(strings.TrimSpace(line[from:])))
}

// Plain is a text without its style.
func Plain(spans []Span) string {
	var b strings.Builder
	for _, s := range spans {
		b.WriteString(s.Text)
	}
	return b.String()
}

var styled = regexp.MustCompile("`([^`]+)`" + `|\*\*(.+?)\*\*|\*([^* ][^*]*)\*|\[((?:[^\]` + "`" + `]|` + "`[^`]*`" + `)+)\]\(([^)]+)\)`)

// spans reads the styles in a text.
func spans(text string) (out []Span) {
	add := func(text string, style func(*Span)) {
		for _, s := range spans(text) {
			style(&s)
			out = append(out, s)
		}
	}
	for text != "" {
		m := styled.FindStringSubmatchIndex(text)
		if m == nil {
			return append(out, Span{Text: unescaped(text)})
		}
		if m[0] > 0 {
			out = append(out, Span{Text: unescaped(text[:m[0]])})
		}
		switch {
		case m[2] >= 0:
			out = append(out, Span{Text: text[m[2]:m[3]], Code: true})
		case m[4] >= 0:
			add(text[m[4]:m[5]], func(s *Span) { s.Bold = true })
		case m[6] >= 0:
			add(text[m[6]:m[7]], func(s *Span) { s.Italic = true })
		default:
			target := text[m[10]:m[11]]
			add(text[m[8]:m[9]], func(s *Span) { s.Link = target })
		}
		text = text[m[1]:]
	}
	return out
}

func unescaped(text string) string {
	return strings.NewReplacer(`\|`, "|", `\*`, "*", `\_`, "_", `\<`, "<").Replace(text)
}
