package demo_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

func TestDemo(t *testing.T) {
	t.Parallel()
	out := clitest.OK(t, "demo", "--for", "4s")
	clitest.Contains(t, out, "postrider demo: SQLite in a temporary file to JetStream in this process",
		"the shop opens", "the JetStream server is shut down", "the broker is back", "a bad deployment",
		"the relay crashes", "another relay starts",
		"the shop closes", "Every promise was kept.", "lost 0 · invented 0 · altered 0 · order violations 0 · in the dead letters 0", "postrider migrate up --store")
	// On a slow machine the last attempt may not have been made when the fix is deployed.
	if !strings.Contains(out, "of one cause") && !strings.Contains(out, "have attempts left") {
		t.Errorf("the repair does not show:\n%s", out)
	}
	if strings.Contains(out, "\x1b") {
		t.Error("there are escape sequences although it is no terminal")
	}
}

func TestDemoTouchesNothingThatExists(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "mine.db")
	clitest.Must(t, os.WriteFile(file, []byte("mine"), 0o600))
	clitest.Fails(t, program.ExitFailed, "exists; give a file that does not", "demo", "--store", "sqlite:"+file)
	clitest.Fails(t, program.ExitUsage, `"oracle" is not a kind of store`, "demo", "--store", "oracle://h/d")
	clitest.Fails(t, program.ExitUsage, "--for must be 3s to 24h", "demo", "--for", "1s")
}
