package docs_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/servertest"
)

// TestSite: the site is built without a warning, with a page for each document, the search, and nothing from other hosts.
func TestSite(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short leaves out the site, whose generator is installed first")
	}
	for _, name := range []servertest.Name{servertest.PythonBin, servertest.NPMBin} {
		servertest.Get(t, name) // make finds them in the path
	}
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "make", "-s", "site", "SITE_DIR="+dir)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil || strings.Contains(string(out), "WARNING") {
		t.Fatalf("make site: %v\n%s", err, out)
	}
	for _, name := range []string{"index.html", "start/tutorial/index.html", "start/consumer/index.html", "tutorial/index.html", "search/search_index.json", "llms.txt", "assets/mermaid.min.js"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	for _, d := range documents(t) {
		name, inside := strings.CutPrefix(d.name(), "docs/")
		if !inside {
			continue
		}
		page := strings.TrimSuffix(strings.TrimSuffix(name, ".md"), "README")
		if name != "index.md" {
			page += "/index.html"
		} else {
			page += ".html"
		}
		if _, err := os.Stat(filepath.Join(dir, page)); err != nil {
			t.Error(err)
		}
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".html" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, foreign := range []string{`<script src="http`, `<link rel="stylesheet" href="http`, "fonts.googleapis"} {
			if strings.Contains(string(text), foreign) {
				t.Errorf("%s loads something from another host: %s", path, foreign)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
