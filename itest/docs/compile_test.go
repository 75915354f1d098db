package docs_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// goBlock is a block of Go in a document.
type goBlock struct {
	page string // path of the document in the repository
	line int    // of its first line
	text string
}

var (
	goFence     = regexp.MustCompile("(?ms)^ *```go\n(.*?)^ *```")
	indentation = regexp.MustCompile(`(?m)^[ \t]+`)
)

func (d document) goBlocks() (blocks []goBlock) {
	for _, m := range goFence.FindAllStringSubmatchIndex(d.text, -1) {
		blocks = append(blocks, goBlock{filepath.ToSlash(d.name()), 1 + strings.Count(d.text[:m[2]], "\n"), d.text[m[2]:m[3]]})
	}
	return blocks
}

// TestGoBlocks compiles the Go in documents, each page after what it takes for granted (testdata/given). A block sees what earlier blocks
// of its page declare. What a page quotes from a file of the repository is compiled there.
func TestGoBlocks(t *testing.T) {
	t.Parallel()
	code := allCode(t)
	var sources []goSource
	found, quoted := 0, 0
	for _, d := range documents(t) {
		var own []goBlock
		for _, b := range d.goBlocks() {
			found++
			if strings.Contains(code, indentation.ReplaceAllString(b.text, "")) {
				quoted++
				continue
			}
			if formatted, err := format.Source([]byte(b.text)); err == nil && string(formatted) != b.text {
				t.Errorf("%s:%d: gofmt writes this block as\n%s", b.page, b.line, formatted)
			}
			own = append(own, b)
		}
		sources = append(sources, sourcesOf(t, own)...)
	}
	check, err := newChecker(sources)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sources {
		for _, err := range check.errors(s) {
			t.Error(err)
		}
	}
	t.Logf("%d blocks, %d of them quoted", found, quoted)
	if found < 50 || quoted > found/3 {
		t.Errorf("%d blocks were found, %d of them quoted", found, quoted)
	}
}

// allCode is the Go code of the repository, without indentation.
func allCode(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return filepath.SkipDir
		case filepath.Ext(path) != ".go":
			return nil
		}
		text, err := os.ReadFile(path)
		all.WriteString(indentation.ReplaceAllString(string(text), ""))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// goSource is a file made from blocks. Its line directives name their pages.
type goSource struct{ name, text string }

// sourcesOf makes files from the blocks of a page: one from each program, and one from all declarations and statements.
func sourcesOf(t *testing.T, blocks []goBlock) (sources []goSource) {
	t.Helper()
	var declarations, statements strings.Builder
	depth := 0
	for _, b := range blocks {
		text := fmt.Sprintf("//line %s:%d\n%s\n", b.page, b.line, b.text)
		switch {
		case strings.HasPrefix(b.text, "package "):
			sources = append(sources, goSource{b.page, text})
		case parses("package p\n" + b.text):
			declarations.WriteString(text)
		default:
			statements.WriteString("{\n" + text)
			depth++
		}
	}
	if declarations.Len()+statements.Len() == 0 {
		return sources
	}
	page := blocks[0].page
	given, err := os.ReadFile(filepath.Join(root, "itest/docs/testdata/given", strings.TrimSuffix(page, ".md")+".go"))
	if err != nil {
		t.Errorf("%s shows Go, and what it takes for granted is declared nowhere: %v", page, err)
		return sources
	}
	return append(sources, goSource{page, string(given) + declarations.String() +
		"\nfunc _(ctx context.Context) error {\n" + statements.String() + strings.Repeat("}\n", depth) + "return nil\n}\n"})
}

func parses(text string) bool {
	_, err := parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
	return err == nil
}

// checker checks types, with what `go list -export` has compiled.
type checker struct {
	files    *token.FileSet
	compiled map[string]string // file of an import path
	importer types.Importer
}

func newChecker(sources []goSource) (*checker, error) {
	c := &checker{files: token.NewFileSet(), compiled: map[string]string{}}
	imports := map[string]bool{}
	for _, s := range sources {
		file, err := parser.ParseFile(token.NewFileSet(), s.name, s.text, parser.ImportsOnly)
		if err != nil {
			return nil, err
		}
		for _, i := range file.Imports {
			name, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return nil, err
			}
			imports[name] = true
		}
	}
	args := []string{"list", "-trimpath", "-export", "-deps", "-f", "{{if .Export}}{{.ImportPath}} {{.Export}}{{end}}"}
	args = slices.AppendSeq(args, maps.Keys(imports))
	list := exec.Command("go", args...)
	list.Dir, list.Env = root, append(os.Environ(), "CGO_ENABLED=0") // what make programs has compiled
	out, err := list.Output()
	if exit, failed := errors.AsType[*exec.ExitError](err); failed {
		return nil, fmt.Errorf("go list: %w\n%s", err, exit.Stderr)
	} else if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		c.compiled[name] = file
	}
	c.importer = importer.ForCompiler(c.files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(c.compiled[path]) })
	return c, nil
}

// errors are what the compiler says about a file. Fragments may declare what they do not use.
func (c *checker) errors(s goSource) (all []error) {
	file, err := parser.ParseFile(c.files, path.Base(s.name), s.text, parser.SkipObjectResolution) // line directives are relative to its folder
	if err != nil {
		return []error{err}
	}
	config := types.Config{Importer: c.importer, Error: func(err error) {
		if e, ok := errors.AsType[types.Error](err); !ok || !e.Soft {
			all = append(all, err)
		}
	}}
	if _, err := config.Check("p", c.files, []*ast.File{file}, nil); err != nil && !errors.As(err, new(types.Error)) {
		all = append(all, err)
	}
	return all
}

// TestWrongGo: what does not compile is found, at its line in the page.
func TestWrongGo(t *testing.T) {
	t.Parallel()
	const given = "package given\n\nimport (\n\"context\"\n\"errors\"\n)\n"
	check, err := newChecker([]goSource{{"", given}})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"x := 1":          "",
		"x := 1\nx.y()":   "a.md:8: x.y undefined (type int has no field or method y)",
		"errors.New()":    "a.md:7: not enough arguments in call to errors.New\n\thave ()\n\twant (string)",
		"return nil, nil": "a.md:7: too many return values\n\thave (nil, nil)\n\twant (error)",
		"func f() error { return errors.Nothing() }": "a.md:7: undefined: errors.Nothing",
		"x := := 1": "a.md:7: expected operand, found ':=' (and 1 more errors)",
	} {
		s := goSource{"a.md", given}
		if b := fmt.Sprintf("//line a.md:7\n%s\n", text); parses("package p\n" + text) {
			s.text += b
		} else {
			s.text += "func _(ctx context.Context) error {\n" + b + "return nil\n}\n"
		}
		got := ""
		if all := check.errors(s); len(all) > 0 {
			got = all[0].Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
