package docs_test

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var anyBlock = regexp.MustCompile("(?ms)^ *```([a-z]+)\n(.*?)^ *```")

// TestCodeBlocks: Go and JSON in documents can be parsed. An ellipsis stands for what was left out.
func TestCodeBlocks(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, d := range documents(t) {
		for _, m := range anyBlock.FindAllStringSubmatch(d.text, -1) {
			var err error
			switch m[1] {
			case "go":
				err = parseGo(m[2])
			case "json":
				err = json.Unmarshal([]byte(strings.ReplaceAll(m[2], "…", "")), new(any))
			default:
				continue
			}
			seen++
			if err != nil {
				t.Errorf("%s: %v in:\n%s", d.name(), err, m[2])
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d blocks were found", seen)
	}
}

var ellipsis = regexp.MustCompile(`(?m)^\s*(\.\.\.|…)\s*$`)

// parseGo parses a file, declarations, statements, fields of a literal, or the end of a call.
func parseGo(text string) error {
	text = strings.NewReplacer("…, ", "", "…", "").Replace(ellipsis.ReplaceAllString(text, ""))
	var first error
	for _, wrapped := range []string{"package p\nfunc _() error {\n" + text + "\n}", "package p\n" + text, text, "package p\nvar _ = T{\n" + text + "\n}", "package p\nvar _ = f(" + text} {
		_, err := parser.ParseFile(token.NewFileSet(), "", wrapped, parser.SkipObjectResolution)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

func TestParseGo(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		"x := 1\n...\nreturn x":                 true,
		"var x = 1\n\nfunc f() {}":              true,
		"package main\n\nfunc main() {}":        true,
		"in, err := inbox.New(store, …)":        true,
		"Name: \"a\",\nOther: …,":               false,
		"Name: \"a\",\nOther: f(…),":            true,
		"for {":                                 false,
		"x := := 1":                             false,
		"func f( {}":                            false,
		"h := func(m Message) { /* … */ }; h()": true,
	} {
		if err := parseGo(text); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}

var siteLink = regexp.MustCompile(`\]\(([^)]+)\)`)

// TestForModels: the pages that docs/llms.txt names exist.
func TestForModels(t *testing.T) {
	t.Parallel()
	links := siteLink.FindAllStringSubmatch(read(t, "docs/llms.txt"), -1)
	for _, m := range links {
		if _, err := os.Stat(filepath.Join(root, "docs", m[1])); err != nil {
			t.Errorf("docs/llms.txt: %v", err)
		}
	}
	if len(links) < 10 {
		t.Errorf("only %d links were found", len(links))
	}
}

// TestReadmeIsShort: the README is read in a minute.
func TestReadmeIsShort(t *testing.T) {
	t.Parallel()
	if lines := strings.Count(read(t, "README.md"), "\n"); lines > 120 {
		t.Errorf("README.md has %d lines, want 120 at most", lines)
	}
}
