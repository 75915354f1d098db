package postgres_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMapOfFiles: the list in doc.go has each file of the package once.
func TestMapOfFiles(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "// Where things are.")
	var listed []string
	for line := range strings.Lines(list) {
		if row, found := strings.CutPrefix(line, "//\t"); found && len(row) > 28 {
			listed = append(listed, strings.Fields(row[28:])...)
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") && file != "doc.go" {
			want = append(want, strings.TrimSuffix(file, ".go"))
		}
	}
	slices.Sort(listed)
	slices.Sort(want)
	if !slices.Equal(listed, want) {
		t.Errorf("doc.go lists\n%q, and the folder has\n%q", listed, want)
	}
}
