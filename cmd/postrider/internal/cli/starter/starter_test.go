package starter_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

// TestInit: the files are written once, and none of them if one exists. shop/main_test.go runs the program.
func TestInit(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "shop")
	clitest.Contains(t, clitest.OK(t, "init", dir, "--only", "AGENTS.md"), "wrote AGENTS.md")
	clitest.Fails(t, program.ExitFailed, "AGENTS.md exists; nothing was written", "init", dir)
	clitest.Must(t, os.Remove(filepath.Join(dir, "AGENTS.md")))
	clitest.Contains(t, clitest.OK(t, "init", dir), "go mod tidy")
	for _, name := range []string{"main.go", "compose.yaml", "AGENTS.md"} {
		want, err := os.ReadFile(filepath.Join("shop", name))
		clitest.Must(t, err)
		got, err := os.ReadFile(filepath.Join(dir, name))
		clitest.Must(t, err)
		if string(got) != string(want) {
			t.Errorf("%s differs", name)
		}
	}
	clitest.Fails(t, program.ExitUsage, "--only must be main.go, compose.yaml, AGENTS.md, is go.sum", "init", dir, "--only", "go.sum")
}
