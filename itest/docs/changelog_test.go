package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// categories are those of Keep a Changelog, in the order in which a release has them.
var categories = []string{"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}

// TestChangelog: CHANGELOG.md has the form of Keep a Changelog, and lists no change of what no release had.
func TestChangelog(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range checkChangelog(string(text)) {
		t.Errorf("CHANGELOG.md: %s", fault)
	}
}

var releaseHeading = regexp.MustCompile(`^## \[(\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?)\] - (\d{4}-\d{2}-\d{2})$`)

// changelog is what has been read of one.
type changelog struct {
	text     string
	releases []string // the versions, newest first
	category string   // of the line, "" before the first one of a release
	empty    string   // a category without an entry so far
	used     []string // categories of the release
	dates    []string
	faults   []string
}

// checkChangelog lists what is wrong with the form of a changelog.
func checkChangelog(text string) []string {
	c := &changelog{text: text}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if lines[0] != "# Changelog" {
		c.fault(1, "the first line must be: # Changelog")
	}
	for i, line := range lines[1:] {
		c.line(i+2, line)
	}
	c.closeCategory(len(lines))
	if len(c.releases) == 0 || c.releases[0] != "Unreleased" {
		c.fault(len(lines), "the first release must be: ## [Unreleased]")
	}
	return c.faults
}

func (c *changelog) fault(line int, format string, args ...any) {
	c.faults = append(c.faults, fmt.Sprintf("line %d: ", line)+fmt.Sprintf(format, args...))
}

func (c *changelog) line(number int, line string) {
	switch {
	case strings.HasPrefix(line, "#### "):
		if c.category == "" {
			c.fault(number, "an area needs a category before it")
		}
	case strings.HasPrefix(line, "### "):
		c.closeCategory(number)
		c.beginCategory(number, strings.TrimPrefix(line, "### "))
	case strings.HasPrefix(line, "## "):
		c.closeCategory(number)
		c.beginRelease(number, line)
	case strings.HasPrefix(line, "#"):
		c.fault(number, "there is no such heading in a changelog: %s", line)
	case strings.HasPrefix(line, "- "):
		if c.category == "" {
			c.fault(number, "an entry needs a category before it")
		}
		c.empty = ""
	}
}

func (c *changelog) beginRelease(number int, line string) {
	version := "Unreleased"
	if m := releaseHeading.FindStringSubmatch(line); m != nil {
		version = m[1]
		if _, err := time.Parse(time.DateOnly, m[2]); err != nil {
			c.fault(number, "%s is no date", m[2])
		}
		if n := len(c.dates); n > 0 && m[2] > c.dates[n-1] {
			c.fault(number, "the newest release comes first")
		}
		c.dates = append(c.dates, m[2])
	} else if line != "## [Unreleased]" {
		c.fault(number, "a release must be: ## [Unreleased], or ## [1.2.3] - 2006-01-02")
	}
	if slices.Contains(c.releases, version) {
		c.fault(number, "%s occurs twice", version)
	}
	if !strings.Contains(c.text, "\n["+version+"]: https://") {
		c.fault(number, "the link of [%s] is missing", version)
	}
	c.releases, c.used = append(c.releases, version), nil
}

func (c *changelog) beginCategory(number int, name string) {
	at := slices.Index(categories, name)
	switch {
	case at < 0:
		c.fault(number, "there is no category %q; take one of %s", name, strings.Join(categories, ", "))
	case len(c.releases) == 0:
		c.fault(number, "a category needs a release before it")
	case len(c.used) > 0 && at <= slices.Index(categories, c.used[len(c.used)-1]):
		c.fault(number, "%s must be before %s", name, c.used[len(c.used)-1])
	case name != "Added" && !regexp.MustCompile(`(?m)^## \[\d`).MatchString(c.text):
		c.fault(number, "there is no release yet, so everything is Added; what no release had gets no entry of its own")
	}
	c.category, c.empty, c.used = name, name, append(c.used, name)
}

func (c *changelog) closeCategory(number int) {
	if c.empty != "" {
		c.fault(number, "%s has no entry", c.empty)
	}
	c.category, c.empty = "", ""
}

func TestCheckChangelog(t *testing.T) {
	t.Parallel()
	const (
		begin = "# Changelog\n\n## [Unreleased]\n\n"
		links = "\n[Unreleased]: https://x\n[1.0.0]: https://x\n[0.9.0]: https://x\n"
		first = "## [1.0.0] - 2026-01-31\n\n### Added\n\n- All.\n"
	)
	for name, tt := range map[string]struct{ text, want string }{
		"nothing yet":                    {begin + links, ""},
		"only additions":                 {begin + "### Added\n\n#### Area\n\n- One.\n" + links, ""},
		"two releases":                   {begin + "### Changed\n\n- One.\n\n### Fixed\n\n- Two.\n\n" + first + links, ""},
		"another title":                  {"# Changes\n\n## [Unreleased]\n" + links, "the first line"},
		"no unreleased section":          {"# Changelog\n\n" + first + links, "the first release must be"},
		"an unknown category":            {begin + "### News\n\n- One.\n" + links, `no category "News"`},
		"a fix of what was not released": {begin + "### Fixed\n\n- One.\n" + links, "there is no release yet"},
		"categories in the wrong order":  {begin + "### Fixed\n\n- One.\n\n### Added\n\n- Two.\n\n" + first + links, "Added must be before Fixed"},
		"a category twice":               {begin + "### Added\n\n- One.\n\n### Added\n\n- Two.\n" + links, "Added must be before Added"},
		"an empty category":              {begin + "### Added\n" + links, "Added has no entry"},
		"an entry without a category":    {begin + "- One.\n" + links, "needs a category"},
		"an area without a category":     {begin + "#### Area\n" + links, "needs a category"},
		"a release without a date":       {begin + "## [1.0.0]\n\n### Added\n\n- All.\n" + links, "a release must be"},
		"a date that does not exist":     {begin + strings.Replace(first, "01-31", "02-31", 1) + links, "is no date"},
		"releases in the wrong order":    {begin + strings.Replace(first, "1.0.0] - 2026", "0.9.0] - 2025", 1) + first + links, "the newest release comes first"},
		"a release twice":                {begin + first + first + links, "1.0.0 occurs twice"},
		"a release that is not linked":   {begin + first + "[Unreleased]: https://x\n", "the link of [1.0.0] is missing"},
		"a heading that does not belong": {begin + "##### More\n" + links, "no such heading"},
		"a category without its release": {"# Changelog\n\n### Added\n\n- One.\n\n## [Unreleased]\n" + links, "needs a release"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := strings.Join(checkChangelog(tt.text), "\n")
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}
