package archtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mapColumn is where the names of files begin in a line of a map.
const mapColumn = 28

// TestMapOfFiles: where doc.go says where things are, its list has each file of the package once.
func TestMapOfFiles(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"relay", "inbox", "store/postgres"} {
		text, err := os.ReadFile(filepath.Join(repository(t), folder, "doc.go"))
		if err != nil {
			t.Fatal(err)
		}
		_, list, _ := strings.Cut(string(text), "\n// Where things are;")
		var listed []string
		for line := range strings.Lines(list) {
			if row, found := strings.CutPrefix(line, "//\t"); found && len(row) > mapColumn {
				listed = append(listed, strings.Fields(row[mapColumn:])...)
			}
		}
		files, err := filepath.Glob(filepath.Join(repository(t), folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, file := range files {
			if name := filepath.Base(file); !strings.HasSuffix(name, "_test.go") && name != "doc.go" {
				want = append(want, strings.TrimSuffix(name, ".go"))
			}
		}
		slices.Sort(listed)
		slices.Sort(want)
		if !slices.Equal(listed, want) {
			t.Errorf("%s/doc.go lists\n%q, and the folder has\n%q", folder, listed, want)
		}
	}
}
