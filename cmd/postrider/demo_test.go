package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

func TestDemo(t *testing.T) {
	t.Parallel()
	out := ok(t, "demo", "--for", "3s")
	contains(t, out, "postrider demo: SQLite in a temporary file to JetStream in this process",
		"the shop opens", "the JetStream server is shut down", "the broker is back", "customer/7 is poisoned",
		"the relay crashes", "another relay starts", "an operator repairs the cause and redrives 1 dead letter",
		"the shop closes", "Every promise was kept.", "lost 0 · invented 0 · altered 0 · order violations 0 · in the dead letters 0")
	if m := regexp.MustCompile(`(?m)^.*held keys 1  parked \d+  dead letters 1$`).FindString(out); m == "" {
		t.Errorf("the held key does not show:\n%s", out)
	}
	if regexp.MustCompile(`\x1b`).MatchString(out) {
		t.Error("there are escape sequences although it is no terminal")
	}
}

func TestDemoTouchesNothingThatExists(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "mine.db")
	must(t, os.WriteFile(file, []byte("mine"), 0o600))
	fails(t, exitFailed, "exists; give a file that does not", "demo", "--store", "sqlite:"+file)
	fails(t, exitUsage, "memory: cannot be used here", "demo", "--store", "memory:")
	fails(t, exitUsage, "--for must be 3s to 24h", "demo", "--for", "1s")
}
