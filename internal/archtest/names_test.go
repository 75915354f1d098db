package archtest

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mostNames is the largest number of names that go doc lists for a package that users read. What only stores, tests or observers need
// belongs into another one.
var mostNames = map[string]int{
	"outbox": 5, "relay": 24, "inbox": 17, "deadletter": 12, "held": 5, "pause": 6, "store/postgres": 20, "store/mysql": 14, "store/sqlite": 13,
	"store/memory": 5,
}

// TestFewNames: go doc of a package shows what a user needs, which can be read at once.
func TestFewNames(t *testing.T) {
	t.Parallel()
	for _, folder := range slices.Sorted(maps.Keys(mostNames)) {
		paths, err := filepath.Glob(filepath.Join(repository(t), folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		set := token.NewFileSet()
		var files []*ast.File
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		p, err := doc.NewFromFiles(set, files, Root+"/"+folder)
		if err != nil {
			t.Fatal(err)
		}
		names := len(p.Consts) + len(p.Vars) + len(p.Funcs) + len(p.Types)
		for _, typ := range p.Types {
			names += len(typ.Funcs)
		}
		if names == 0 || names > mostNames[folder] {
			t.Errorf("go doc lists %d names and groups of %s, want 1 to %d", names, folder, mostNames[folder])
		}
	}
}
