package docs_test

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

var code = regexp.MustCompile("`([^`\n]+)`")

// TestNamesInCode: every name and path in docs/code.md exists.
func TestNamesInCode(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs/code.md"))
	if err != nil {
		t.Fatal(err)
	}
	known, err := readDeclarations(root)
	if err != nil {
		t.Fatal(err)
	}
	found := unknown(string(text), func(name string) bool {
		_, err := os.Stat(filepath.Join(root, name))
		return err == nil || known[name]
	})
	for _, name := range found {
		t.Errorf("docs/code.md: `%s` is neither a path of the repository nor a name in its code (package.Name, package.Type.Member)", name)
	}
	if n := len(code.FindAllString(string(text), -1)); n < 50 {
		t.Errorf("only %d names were found", n)
	}
}

// unknown lists the names in backticks, outside of blocks, that are not known.
func unknown(text string, known func(name string) bool) (found []string) {
	for _, m := range code.FindAllStringSubmatch(block.ReplaceAllString(text, ""), -1) {
		if !known(m[1]) && !slices.Contains(found, m[1]) {
			found = append(found, m[1])
		}
	}
	return found
}

func TestUnknownNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const source = "package natsbroker\n\ntype Publisher[T any] struct{ mu, other int }\n\nfunc (p *Publisher[T]) Publish() {}\n\n" +
		"type Store interface{ Insert() }\n\nconst sql = 1\n"
	if err := os.MkdirAll(filepath.Join(dir, "broker", "nats"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "broker", "nats", "a.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	known, err := readDeclarations(dir)
	if err != nil {
		t.Fatal(err)
	}
	const text = "`nats.Publisher` `natsbroker.Publisher.mu` `nats.Publisher.Publish` `nats.Store.Insert` `nats.sql`\n" +
		"```text\n`nats.Block`\n```\n`nats.Publisher.Gone` `Publisher` `nats.Store.Publish`\n"
	want := []string{"nats.Publisher.Gone", "Publisher", "nats.Store.Publish"}
	if got := unknown(text, func(name string) bool { return known[name] }); !slices.Equal(got, want) {
		t.Errorf("unknown: %q, want %q", got, want)
	}
}

// readDeclarations returns what the packages below a folder declare outside of tests: package.Name for each declaration,
// package.Type.Member for each method and field. A package goes by its name, and by that of its folder.
func readDeclarations(folder string) (map[string]bool, error) {
	known, set := make(map[string]bool), token.NewFileSet()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(name, ".") && path != folder || name == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		for _, decl := range file.Decls {
			for _, name := range declared(decl) {
				known[file.Name.Name+"."+name] = true
				known[filepath.Base(filepath.Dir(path))+"."+name] = true
			}
		}
		return nil
	})
	return known, err
}

// declared lists the names of a declaration: those of methods and fields after that of their type.
func declared(decl ast.Decl) (names []string) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		return []string{typeName(d.Recv.List[0].Type) + "." + d.Name.Name}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				for _, name := range s.Names {
					names = append(names, name.Name)
				}
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
				for _, member := range members(s.Type) {
					names = append(names, s.Name.Name+"."+member)
				}
			}
		}
	}
	return names
}

// members lists the fields of a struct, also the embedded ones, or the methods of an interface.
func members(t ast.Expr) (names []string) {
	var fields *ast.FieldList
	switch t := t.(type) {
	case *ast.StructType:
		fields = t.Fields
	case *ast.InterfaceType:
		fields = t.Methods
	default:
		return nil
	}
	for _, f := range fields.List {
		for _, name := range f.Names {
			names = append(names, name.Name)
		}
		if s, ok := f.Type.(*ast.SelectorExpr); ok && len(f.Names) == 0 {
			names = append(names, s.Sel.Name)
		} else if len(f.Names) == 0 {
			names = append(names, typeName(f.Type))
		}
	}
	return names
}

// typeName is the name of a receiver's type.
func typeName(e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}
