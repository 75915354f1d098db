package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var readsServer = regexp.MustCompile(`(Getenv|LookupEnv)\("POSTRIDER_TEST_(POSTGRES|MYSQL|NATS|REDIS|RABBITMQ|KAFKA|[A-Z_]+_BIN)`)

// TestServersAreAskedFor: tests must not read a server's variable directly, because servers start only when package
// servertest requests them.
func TestServersAreAskedFor(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir(repository(t), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && strings.HasPrefix(entry.Name(), ".") {
			return orSkip(err)
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if found := readsServer.Find(text); found != nil {
			t.Errorf("%s reads a server's variable with %s…; use servertest.Get", path, found)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func orSkip(err error) error {
	if err != nil {
		return err
	}
	return fs.SkipDir
}
