package docs_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var jsonBlock = regexp.MustCompile("(?ms)^ *```json\n(.*?)^ *```")

// TestJSON: JSON in documents is JSON. An ellipsis stands for what was left out.
func TestJSON(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, d := range documents(t) {
		for _, m := range jsonBlock.FindAllStringSubmatch(d.text, -1) {
			seen++
			if err := json.Unmarshal([]byte(strings.ReplaceAll(m[1], "…", "")), new(any)); err != nil {
				t.Errorf("%s: %v in:\n%s", d.name(), err, m[1])
			}
		}
	}
	if seen < 4 {
		t.Errorf("only %d blocks were found", seen)
	}
}

var siteLink = regexp.MustCompile(`\]\(([^)]+)\)`)

// TestForModels: the pages that docs/llms.txt names exist.
func TestForModels(t *testing.T) {
	t.Parallel()
	links := siteLink.FindAllStringSubmatch(read(t, "docs/llms.txt"), -1)
	for _, m := range links {
		if _, err := os.Stat(filepath.Join(root, "docs", m[1])); err != nil {
			t.Errorf("docs/llms.txt: %v", err)
		}
	}
	if len(links) < 10 {
		t.Errorf("only %d links were found", len(links))
	}
}

// TestReadmeIsShort: the README is read in a minute.
func TestReadmeIsShort(t *testing.T) {
	t.Parallel()
	if lines := strings.Count(read(t, "README.md"), "\n"); lines > 120 {
		t.Errorf("README.md has %d lines, want 120 at most", lines)
	}
}
