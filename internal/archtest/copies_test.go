package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxCopy is the largest number of lines of code that two stores may have in common in one place. What is longer and is not SQL
// belongs into internal/stored, or into the packages on top of stores.
const maxCopy = 12

// TestStoresShareNoCode: no two stores have a run of the same lines, whatever the names in it. SQL does not count.
func TestStoresShareNoCode(t *testing.T) {
	t.Parallel()
	stores := []string{"postgres", "mysql", "sqlite", "memory"}
	code := make(map[string][]codeFile)
	for _, name := range stores {
		paths, err := filepath.Glob(filepath.Join(repository(t), "store", name, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			f, err := readCode(filepath.Join(name, filepath.Base(path)), text)
			if err != nil {
				t.Fatal(err)
			}
			code[name] = append(code[name], f)
		}
		if len(code[name]) < 20 {
			t.Errorf("only %d files of store/%s were found", len(code[name]), name)
		}
	}
	for i, a := range stores {
		for _, b := range stores[i+1:] {
			for _, c := range copies(code[a], code[b]) {
				t.Errorf("%s; put what is not SQL into internal/stored", c)
			}
		}
	}
}

// codeFile is a file's lines of code.
type codeFile struct {
	name  string
	lines []codeLine
}

// codeLine is a line without comments, white space, names, and what texts say.
type codeLine struct {
	number int
	text   string
}

// readCode returns the lines of a file that are neither empty, nor comments, imports or SQL.
func readCode(name string, source []byte) (codeFile, error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, name, source, 0)
	if err != nil {
		return codeFile{}, err
	}
	skipped := make(map[int]bool)
	skip := func(n ast.Node) {
		for line := files.Position(n.Pos()).Line; line <= files.Position(n.End()).Line; line++ {
			skipped[line] = true
		}
	}
	skip(parsed.Name)
	for _, d := range parsed.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		if !slices.ContainsFunc(decl.Specs, func(s ast.Spec) bool { return !isSQL(s) }) {
			skip(decl)
		}
		for _, spec := range decl.Specs {
			if isSQL(spec) {
				skip(spec)
			}
		}
	}
	var s scanner.Scanner
	file := token.NewFileSet().AddFile(name, -1, len(source))
	s.Init(file, source, nil, 0)
	out := codeFile{name: name}
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return out, nil
		}
		line := file.Line(pos)
		switch {
		case tok == token.SEMICOLON || skipped[line]:
			continue
		case tok == token.STRING:
			text = `""`
		case tok == token.IDENT:
			text = "n"
		case text == "":
			text = tok.String()
		}
		if n := len(out.lines); n > 0 && out.lines[n-1].number == line {
			out.lines[n-1].text += " " + text
		} else {
			out.lines = append(out.lines, codeLine{line, text})
		}
	}
}

// isSQL reports whether a declaration is an import, or a text of SQL.
func isSQL(s ast.Spec) bool {
	value, ok := s.(*ast.ValueSpec)
	if !ok {
		_, ok = s.(*ast.ImportSpec)
		return ok
	}
	name := strings.TrimSuffix(value.Names[0].Name, "s")
	return strings.HasSuffix(name, "SQL") || strings.HasSuffix(name, "Column")
}

// copies lists the longest runs of lines that files of two stores have in common.
func copies(as, bs []codeFile) (found []string) {
	for _, a := range as {
		for _, b := range bs {
			n := make([]int, len(b.lines)+1) // lengths of the common runs that end before a line of b
			for i, line := range a.lines {
				for j := len(b.lines); j > 0; j-- {
					if line.text != b.lines[j-1].text {
						n[j] = 0
						continue
					}
					n[j] = n[j-1] + 1
					longest := i+1 == len(a.lines) || j == len(b.lines) || a.lines[i+1].text != b.lines[j].text
					if longest && n[j] > maxCopy {
						found = append(found, fmt.Sprintf("%s:%d-%d and %s:%d-%d have %d lines in common", a.name, a.lines[i+1-n[j]].number,
							line.number, b.name, b.lines[j-n[j]].number, b.lines[j-1].number, n[j]))
					}
				}
			}
		}
	}
	slices.Sort(found)
	return found
}

func TestCopies(t *testing.T) {
	t.Parallel()
	body := func(name string, lines int) string {
		return "func " + name + "(a, b int) int {\n" + strings.Repeat("\t"+name+"(a+b, \"x\") // "+name+"\n\n", lines-2) + "}\n"
	}
	for name, tt := range map[string]struct{ a, b, want string }{
		"short":         {body("f", 12), body("g", 12), ""},
		"long":          {body("f", 13), body("g", 13), "a.go:3-26 and b.go:3-26 have 13 lines in common"},
		"another shape": {body("f", 13), strings.Replace(body("f", 13), "a+b", "a, b", 5), ""},
		"SQL":           {"const aSQL = `\n" + strings.Repeat("SELECT\n", 20) + "`\n", "const aSQL = `\n" + strings.Repeat("SELECT\n", 20) + "`\n", ""},
		"names of SQL":  {strings.Repeat("const aSQL = \"x\"\n", 20), strings.Repeat("const bSQL = \"y\"\n", 20), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var files [2][]codeFile
			for i, text := range []string{tt.a, tt.b} {
				f, err := readCode([]string{"a.go", "b.go"}[i], []byte("package p\n\n"+text))
				if err != nil {
					t.Fatal(err)
				}
				files[i] = append(files[i], f)
			}
			if got := strings.Join(copies(files[0], files[1]), "\n"); got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}
