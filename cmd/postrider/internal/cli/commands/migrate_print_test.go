package commands_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

func TestPrintOneMigration(t *testing.T) {
	t.Parallel()
	for store, words := range map[string][]string{
		"postgres://any?schema=mail&prefix=p_": {"-- up 0002_publish", "begin;", `"mail".p_publish`, "insert into", "commit;"},
		"mysql://any/shop?prefix=p_":           {"-- up 0002_inbox", "DELIMITER ;;", "INSERT IGNORE INTO p_migrations"},
		"sqlite:x.db":                          {"-- up 0002_", "BEGIN IMMEDIATE;", "INSERT INTO postrider_migrations", "COMMIT;"},
	} {
		out := clitest.OK(t, "migrate", "print", "--store", store, "--version", "2")
		for _, w := range words {
			if !strings.Contains(out, w) {
				t.Errorf("%s: no %q in %.300s", store, w, out)
			}
		}
		down := clitest.OK(t, "migrate", "print", "--store", store, "--version", "2", "--down")
		if !strings.Contains(down, "-- down 0002_") || !strings.Contains(strings.ToLower(down), "delete from") {
			t.Errorf("%s: down is %.300s", store, down)
		}
	}
}

// TestPrintFilesOfTools: each tool gets a file for each migration, existing files are kept, and a changed one is refused.
func TestPrintFilesOfTools(t *testing.T) {
	t.Parallel()
	known := strings.Count(clitest.OK(t, "migrate", "print", "--store", "mysql://any/shop"), "INSERT IGNORE INTO postrider_migrations")
	for tool, first := range map[string]string{
		"goose": "00001_postrider_outbox.sql", "golang-migrate": "00001_postrider_outbox.up.sql", "flyway": "V1__postrider_outbox.sql",
		"atlas": "00001_postrider_outbox.sql", "liquibase": "00001_postrider_outbox.sql",
	} {
		dir := filepath.Join(t.TempDir(), "migrations")
		args := []string{"migrate", "print", "--store", "mysql://any/shop", "--tool", tool, "--dir", dir}
		names := strings.Fields(clitest.OK(t, args...))
		if filepath.Base(names[0]) != first {
			t.Errorf("%s: wrote %v, want %s first", tool, names, first)
		}
		if want := known*(1+strings.Count(tool, "golang")) + strings.Count(tool, "atlas"); len(names) != want {
			t.Errorf("%s: %d files, want %d", tool, len(names), want)
		}
		clitest.OK(t, args...)
		if err := os.WriteFile(names[0], []byte("changed"), 0o600); err != nil {
			t.Fatal(err)
		}
		clitest.Fails(t, program.ExitFailed, "has another content", args...)
	}
}

func TestPrintRefuses(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"say which with --tool":                  {"--dir", "x"},
		"say which with --version":               {"--down"},
		"write them with --dir":                  {"--tool", "goose"},
		"Atlas runs every file of a directory":   {"--tool", "atlas", "--dir", "x", "--down"},
		"no migration 99":                        {"--version", "99"},
		"must be 1 or more":                      {"--version", "0"},
		"allowed: goose, golang-migrate, flyway": {"--tool", "rails"},
	} {
		clitest.Fails(t, program.ExitUsage, want, append([]string{"migrate", "print", "--store", "sqlite:x.db"}, args...)...)
	}
}
