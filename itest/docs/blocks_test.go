package docs_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// namesakes are packages of the repository with the names of variables in documents, or of packages of the standard library.
var namesakes = []string{"shop", "orders", "signal"}

var anyBlock = regexp.MustCompile("(?ms)^ *```([a-z]+)\n(.*?)^ *```")

// TestCodeBlocks: Go and JSON in documents can be parsed, and what Go names of this repository exists: functions, types, and fields of
// literals. An ellipsis stands for what was left out.
func TestCodeBlocks(t *testing.T) {
	t.Parallel()
	known, err := readDeclarations(root)
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]bool{}
	for name := range known {
		pkg, _, _ := strings.Cut(name, ".")
		packages[pkg] = !slices.Contains(namesakes, pkg)
	}
	seen, named := 0, 0
	for _, d := range documents(t) {
		for _, m := range anyBlock.FindAllStringSubmatch(d.text, -1) {
			var err error
			switch m[1] {
			case "go":
				var file *ast.File
				if file, err = parseGo(m[2]); err == nil {
					for _, name := range namesIn(file, packages) {
						if named++; !known[name] {
							t.Errorf("%s: there is no %s; used in:\n%s", d.name(), name, m[2])
						}
					}
				}
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
	if seen < 20 || named < 150 {
		t.Errorf("only %d blocks were found, with %d names", seen, named)
	}
}

// namesIn are the names in Go code that belong to packages of this repository: pkg.Name, and pkg.Type.Field in a literal.
func namesIn(file *ast.File, packages map[string]bool) (names []string) {
	qualified := func(e ast.Expr) string {
		if i, generic := e.(*ast.IndexExpr); generic {
			e = i.X
		} else if i, generic := e.(*ast.IndexListExpr); generic {
			e = i.X
		}
		if s, ok := e.(*ast.SelectorExpr); ok {
			if pkg, ok := s.X.(*ast.Ident); ok && packages[pkg.Name] && ast.IsExported(s.Sel.Name) {
				return pkg.Name + "." + s.Sel.Name
			}
		}
		return ""
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if name := qualified(n); name != "" {
				names = append(names, name)
			}
		case *ast.CompositeLit:
			name := qualified(n.Type)
			for _, e := range n.Elts {
				if pair, ok := e.(*ast.KeyValueExpr); ok && name != "" {
					if field, ok := pair.Key.(*ast.Ident); ok {
						names = append(names, name+"."+field.Name)
					}
				}
			}
		}
		return true
	})
	return names
}

// TestNamesInBlocks: names that do not exist are found.
func TestNamesInBlocks(t *testing.T) {
	t.Parallel()
	file, err := parseGo("box, err := outbox.New(store, outbox.Config{Source: \"shop\"})\ns := saga.Request[A, B, C]{Name: box.Name}")
	if err != nil {
		t.Fatal(err)
	}
	want := "outbox.New outbox.Config.Source outbox.Config saga.Request.Name saga.Request"
	if got := strings.Join(namesIn(file, map[string]bool{"outbox": true, "saga": true}), " "); got != want {
		t.Errorf("names %s, want %s", got, want)
	}
}

var ellipsis = regexp.MustCompile(`(?m)^\s*(\.\.\.|…)\s*$`)

// parseGo parses a file, declarations, statements, fields of a literal, or the end of a call.
func parseGo(text string) (*ast.File, error) {
	text = strings.NewReplacer("…, ", "", "…", "").Replace(ellipsis.ReplaceAllString(text, ""))
	var first error
	for _, wrapped := range []string{"package p\nfunc _() error {\n" + text + "\n}", "package p\n" + text, text, "package p\nvar _ = T{\n" + text + "\n}", "package p\nvar _ = f(" + text} {
		file, err := parser.ParseFile(token.NewFileSet(), "", wrapped, parser.SkipObjectResolution)
		if err == nil {
			return file, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
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
		if _, err := parseGo(text); (err == nil) != good {
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
