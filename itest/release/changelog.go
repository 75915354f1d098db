package release

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// repository is where the repository is published.
const repository = "https://" + Path

// withRelease returns a changelog in which the unreleased changes are those of a version.
func withRelease(changelog, version string, at time.Time) (string, error) {
	const unreleased, link = "## [Unreleased]\n", "[Unreleased]: "
	before, rest, found := strings.Cut(changelog, unreleased)
	changes, links, linked := strings.Cut(rest, link)
	if !found || !linked {
		return "", errors.New("CHANGELOG.md has no section or no link of Unreleased")
	}
	ours, _, _ := strings.Cut(changes, "\n## ")
	if !strings.Contains(ours, "\n- ") {
		return "", errors.New("CHANGELOG.md lists no unreleased change: there is nothing to release")
	}
	_, older, _ := strings.Cut(links, "\n")
	number := strings.TrimPrefix(version, "v")
	return before + unreleased + fmt.Sprintf("\n## [%s] - %s\n", number, at.Format(time.DateOnly)) + changes +
		link + repository + "/compare/" + version + "...main\n" +
		fmt.Sprintf("[%s]: %s/releases/tag/%s\n", number, repository, version) + older, nil
}
