package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The largest sizes of a file and of a function, in lines.
const (
	maxFile     = 400
	maxFunction = 60
)

// sizeReason is a line of a comment that gives the reason for a larger size: of a file before its first declaration, of a
// function in its doc comment.
var sizeReason = regexp.MustCompile(`(?m)^size: \S+ \S`)

// TestSize: files and functions are small enough to read at once, or say why they are not.
func TestSize(t *testing.T) {
	t.Parallel()
	root, files := repository(t), 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(name, ".") || name == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(name) != ".go":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		files++
		found, err := oversized(relative, string(text))
		for _, f := range found {
			t.Error(f)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 100 {
		t.Errorf("only %d files were found", files)
	}
}

// oversized lists what of a file is too large without a reason, and reasons for what is not too large.
func oversized(name, text string) (found []string, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments)
	if err != nil || ast.IsGenerated(file) {
		return nil, err
	}
	check := func(what string, lines, limit int, reason bool) {
		switch {
		case lines > limit && !reason:
			found = append(found, fmt.Sprintf("%s has %d lines, more than %d; split it, or give the reason in a comment: // size: …", what, lines, limit))
		case lines <= limit && reason:
			found = append(found, fmt.Sprintf("%s has %d lines and needs no reason for its size", what, lines))
		}
	}
	check(name, strings.Count(text, "\n"), maxFile, slices.ContainsFunc(file.Comments, func(c *ast.CommentGroup) bool {
		return c.End() < firstDeclaration(file) && sizeReason.MatchString(c.Text())
	}))
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			lines := set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1
			check(name+": function "+f.Name.Name, lines, maxFunction, sizeReason.MatchString(f.Doc.Text()))
		}
	}
	return found, nil
}

// firstDeclaration is the position of the first declaration that is not an import, or of its doc comment.
func firstDeclaration(file *ast.File) token.Pos {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Doc != nil {
				return d.Doc.Pos()
			}
			return d.Pos()
		case *ast.GenDecl:
			if d.Tok == token.IMPORT {
				continue
			}
			if d.Doc != nil {
				return d.Doc.Pos()
			}
			return d.Pos()
		}
	}
	return file.FileEnd
}

func TestOversized(t *testing.T) {
	t.Parallel()
	function := func(doc string, lines int) string {
		return doc + "func f() {\n" + strings.Repeat("\n", lines-2) + "}\n"
	}
	for name, tt := range map[string]struct {
		text string
		want string // "" if nothing is found
	}{
		"a small file":              {"package p\n", ""},
		"the largest file":          {"package p\n" + strings.Repeat("\n", 399), ""},
		"a large file":              {"package p\n" + strings.Repeat("\n", 400), "a.go has 401 lines"},
		"a large file, with reason": {"package p\n\n// size: one table of all cases\n" + strings.Repeat("\n", 400), ""},
		"a large file, with the reason of a function": {
			"package p\n\n" + function("// size: one table of all cases\n", 61) + strings.Repeat("\n", 400), "a.go has 464 lines",
		},
		"the largest function":          {"package p\n\n" + function("", 60), ""},
		"a large function":              {"package p\n\n" + function("", 61), "function f has 61 lines"},
		"a large function, with reason": {"package p\n\n" + function("// f is long.\n//\n// size: one table of all cases\n", 61), ""},
		"a reason without words":        {"package p\n\n" + function("// size: table\n", 61), "function f has 61 lines"},
		"a reason that is not needed":   {"package p\n\n" + function("// size: one table of all cases\n", 5), "function f has 5 lines and needs no reason"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := oversized("a.go", tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if text := strings.Join(got, "\n"); (tt.want == "") != (text == "") || len(got) > 1 || !strings.Contains(text, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}
