package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestVersions: the versions that docs/project/compatibility.md calls tested are those that the tests use. (Those of the servers from
// Debian are the ones of bookworm.)
func TestVersions(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/project/compatibility.md")
	for _, v := range []struct{ file, pattern, row string }{
		{"tools/go.mod", `nats-server/v2 v(\d+\.\d+)`, "| NATS JetStream | X |"},
		{"itest/cmd/withservers/kafka.go", `kafkaVersion = "(\d+\.\d+)`, "| Kafka | X |"},
		{"itest/go.mod", `modernc.org/sqlite v(\d+\.\d+)`, "| SQLite | the version in modernc.org/sqlite X |"},
		{"go.mod", `go (\d+\.\d+)`, "**Go X**"},
	} {
		found := regexp.MustCompile(v.pattern).FindStringSubmatch(read(t, v.file))
		if found == nil {
			t.Errorf("%s has no %s", v.file, v.pattern)
			continue
		}
		if row := strings.Replace(v.row, "X", found[1], 1); !strings.Contains(page, row) {
			t.Errorf("docs/project/compatibility.md has no %q, the version in %s", row, v.file)
		}
	}
}

// read returns a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var foreignBlock = regexp.MustCompile("(?ms)^```(python|java|typescript)\n(.*?)^```")

// TestForeignCode: the code in docs/guides/languages.md is that of the programs that are run.
func TestForeignCode(t *testing.T) {
	t.Parallel()
	files := map[string]string{"python": "shop.py", "java": "Shop.java", "typescript": "shop.ts"}
	indentation := regexp.MustCompile(`(?m)^ +`)
	blocks := foreignBlock.FindAllStringSubmatch(read(t, "docs/guides/languages.md"), -1)
	for _, m := range blocks {
		program := read(t, filepath.Join("examples/languages", m[1], files[m[1]]))
		if !strings.Contains(indentation.ReplaceAllString(program, ""), indentation.ReplaceAllString(m[2], "")) {
			t.Errorf("this is not in %s:\n%s", files[m[1]], m[2])
		}
	}
	if len(blocks) < 3 {
		t.Errorf("only %d blocks were found", len(blocks))
	}
}

var (
	runLine  = regexp.MustCompile(`run: (.*)`)
	makeCall = regexp.MustCompile(`\bmake ((?:-s )?[a-z -]+)`)
	variable = regexp.MustCompile(`\bPOSTRIDER_TEST_\w+`)
	tested   = regexp.MustCompile(`\./([a-z/]+)/\.\.\.`)
)

// TestWorkflows: the workflows of the public CI call targets that the Makefile has, test packages that exist, and set variables that the
// tests read.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	if err != nil {
		t.Fatal(err)
	}
	makefile, targets := read(t, "Makefile"), 0
	servers := read(t, "internal/servertest/servertest.go")
	for _, file := range files {
		name := filepath.Base(file)
		text := read(t, filepath.Join(".github/workflows", name))
		for _, run := range runLine.FindAllStringSubmatch(text, -1) {
			for _, call := range makeCall.FindAllStringSubmatch(run[1], -1) {
				for target := range strings.FieldsSeq(strings.TrimPrefix(call[1], "-s ")) {
					if targets++; !strings.Contains(makefile, "\n"+target+":") {
						t.Errorf("%s: %q: the Makefile has no target %s", name, run[1], target)
					}
				}
			}
		}
		for _, m := range tested.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, v := range variable.FindAllString(text, -1) {
			if !strings.Contains(servers, `"`+v+`"`) {
				t.Errorf("%s sets %s, which no test reads", name, v)
			}
		}
	}
	if len(files) < 4 || targets < 15 {
		t.Errorf("%d workflows were found, which call %d targets", len(files), targets)
	}
}
