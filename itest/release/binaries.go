package release

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Target is a platform.
type Target struct{ OS, Arch string }

func (t Target) String() string { return t.OS + "/" + t.Arch }

// Targets are the platforms that a release has binaries for.
func Targets() []Target {
	var all []Target
	for _, os := range []string{"linux", "darwin", "windows"} {
		for _, arch := range []string{"amd64", "arm64"} {
			all = append(all, Target{os, arch})
		}
	}
	return all
}

// Stamp says what a binary was built from.
type Stamp struct {
	Version, Revision string
	// Time is that of the commit, so that the binary does not depend on when it was built.
	Time time.Time
}

// ReadStamp returns the stamp of the last commit of a repository.
func ReadStamp(ctx context.Context, root, version string) (Stamp, error) {
	text, err := git(ctx, root, "log", "-1", "--format=%H %cI")
	if err != nil {
		return Stamp{}, err
	}
	revision, date, _ := strings.Cut(strings.TrimSpace(text), " ")
	at, err := time.Parse(time.RFC3339, date)
	return Stamp{version, revision, at.UTC()}, err
}

// variables is the package whose variables the linker sets.
const variables = Path + "/" + Command + "/internal/cli/program"

// compile builds the binary for a target from the release's modules. Without cgo, paths and build IDs, the same source and Go version give
// the same bytes everywhere.
func (p *Place) compile(ctx context.Context, t Target, s Stamp, out string) error {
	set := func(name, value string) string { return fmt.Sprintf(" -X %s.%s=%s", variables, name, value) }
	flags := "-s -w -buildid=" + set("version", s.Version) + set("revision", s.Revision) + set("date", s.Time.Format(time.RFC3339))
	cmd := p.Command(ctx, filepath.Join(p.Dir, "tree", Command), "go", "build", "-trimpath", "-ldflags", flags, "-o", out, ".")
	cmd.Env = append(cmd.Env, "GOOS="+t.OS, "GOARCH="+t.Arch)
	_, err := output(cmd)
	return err
}
