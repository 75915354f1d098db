package commands_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

func TestMigrate(t *testing.T) {
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "shop.db")
	clitest.Fails(t, program.ExitFailed, "create the outbox with: postrider migrate up --store "+url, "status", "--store", url)
	clitest.Fails(t, program.ExitFailed, "no such file", "migrate", "status", "--store", url)
	clitest.Contains(t, clitest.OK(t, "migrate", "up", "--store", url+"?partitions=3"), "up 0001_outbox")
	clitest.Contains(t, clitest.OK(t, "migrate", "up", "--store", url), "is up to date")
	clitest.Contains(t, clitest.OK(t, "migrate", "status", "--store", url), "outbox", "applied")
	clitest.Fails(t, program.ExitUsage, "no schema version 99: this program knows 0 to ", "migrate", "up", "--to", "99", "--store", url)
	clitest.Contains(t, clitest.OK(t, "status", "--store", url+"?partitions=5"), "3 partitions") // set when it was created

	clitest.Fails(t, program.ExitUsage, "Nobody can answer here", "migrate", "down", "--to", "0", "--store", url)
	no := clitest.Invocation{Stdin: "n\n", Terminal: true, Args: []string{"migrate", "down", "--to", "0", "--store", url}}.Run(t)
	clitest.Expect(t, no, program.ExitFailed, "not confirmed; nothing was done")
	yes := clitest.Invocation{Stdin: "yes\n", Terminal: true, Args: no0(url)}.Run(t)
	clitest.Expect(t, yes, program.ExitDone, "Remove the outbox in "+url+" with all its messages and dead letters? [y/N]")
	clitest.Contains(t, yes.Out, "down 0001_outbox")
	clitest.Fails(t, program.ExitNo, "is not up to date; run: postrider migrate up", "migrate", "status", "--json", "--store", url)
	clitest.Fails(t, program.ExitUsage, "below 1", "migrate", "down", "--to", "1", "--yes", "--store", url)
	clitest.Fails(t, program.ExitUsage, `required flag(s) "to" not set`, "migrate", "down", "--store", url)
}

func no0(url string) []string { return []string{"migrate", "down", "--to", "0", "--store", url} }

// TestNewFileIsItsOwners: a message may hold what nobody else may read.
func TestNewFileIsItsOwners(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "shop.db")
	clitest.OK(t, "migrate", "up", "--store", "sqlite:"+file)
	names, err := filepath.Glob(file + "*")
	clitest.Must(t, err)
	for _, name := range names {
		info, err := os.Stat(name)
		if clitest.Must(t, err); info.Mode().Perm() != 0o600 {
			t.Errorf("%s has the mode %s", name, info.Mode())
		}
	}
	if len(names) == 0 {
		t.Error("there is no file")
	}
	clitest.Fails(t, program.ExitFailed, "create sqlite:", "migrate", "up", "--store", "sqlite:"+filepath.Join(file, "no", "folder.db"))
}

func TestMigratePrintNeedsNoDatabase(t *testing.T) {
	t.Parallel()
	clitest.Contains(t, clitest.OK(t, "migrate", "print", "--store", "sqlite:not-there.db?prefix=mail_"), "CREATE TABLE", "mail_log")
}
