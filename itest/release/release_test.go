package release_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/modfile"

	"github.com/postrider/postrider/itest/release"
)

const root = "../.."

func readTree(t *testing.T) release.Tree {
	t.Helper()
	tree, err := release.ReadTree(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// TestInstallable: with nothing but a proxy that serves the modules as they would be released, each module is complete, the README's
// program builds and runs, and the binary installs and runs.
func TestInstallable(t *testing.T) { //nolint:tparallel // the tutorial comes last
	t.Parallel()
	place := newPlace(t)
	if err := place.Check(t.Context(), t.Output()); err != nil {
		t.Fatal(err)
	}
	t.Run("tutorial", func(t *testing.T) { testTutorial(t, place) })
}

// TestNoReplacements: what is in the repository is what is published, so no module replaces another.
func TestNoReplacements(t *testing.T) {
	t.Parallel()
	for name, text := range readTree(t) {
		if filepath.Base(name) != "go.mod" {
			continue
		}
		file, err := modfile.Parse(name, text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(file.Replace) > 0 {
			t.Errorf("%s replaces %s: remove the line (make tidy does); go.work names the module's folder", name, file.Replace[0].Old.Path)
		}
	}
}

// TestModuleOrder: each module comes after those that it requires, and a circle is an error.
func TestModuleOrder(t *testing.T) {
	t.Parallel()
	modules, err := readTree(t).Modules()
	if err != nil {
		t.Fatal(err)
	}
	place := map[string]int{}
	for i, m := range modules {
		place[m.Dir] = i
	}
	for _, pair := range [][2]string{{".", "store/postgres"}, {"store/postgres", "cmd/postrider"}, {"telemetry", "cmd/postrider"}, {"broker/nats", "examples"}} {
		if place[pair[0]] >= place[pair[1]] {
			t.Errorf("%s does not come before %s: %v", pair[0], pair[1], place)
		}
	}
	circle := small()
	circle["go.mod"] = []byte("module " + release.Path + "\n\ngo 1.26.0\n\nrequire " + release.Path + "/b v0.0.0\n")
	if _, err := circle.Modules(); err == nil || !strings.Contains(err.Error(), "circle") {
		t.Errorf("a circle: %v", err)
	}
}

// small is a repository of two modules.
func small() release.Tree {
	mod := "module " + release.Path
	return release.Tree{
		"go.work":                          []byte("go 1.26.0\n\nuse (\n\t.\n\t./b\n)\n"),
		"LICENSE":                          []byte("Apache-2.0"),
		"go.mod":                           []byte(mod + "\n\ngo 1.26.0\n"),
		"a.go":                             []byte("package postrider\n"),
		"b/go.mod":                         []byte(mod + "/b\n\ngo 1.26.0\n\nrequire " + release.Path + " v0.0.0\n\nreplace " + release.Path + " => ../\n"),
		"b/b.go":                           []byte("package b\n\nimport _ \"" + release.Path + "\"\n"),
		"deploy/helm/postrider/Chart.yaml": []byte("version: 0.0.1\nappVersion: 0.0.1\n"),
		"deploy/kubernetes/postrider.yaml": []byte("image: postrider:v0.0.1\n"),
		"CHANGELOG.md":                     []byte("# Changelog\n\n## [Unreleased]\n\n### Added\n\n- All.\n\n[Unreleased]: https://" + release.Path + "/commits/main\n"),
	}
}

// TestTag: a release is one commit whose modules require each other at its version, with a tag for each module.
func TestTag(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := small().Write(dir); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "init", "--quiet", "--initial-branch=main")
	git(t, dir, "config", "user.name", "Test")
	git(t, dir, "config", "user.email", "test@example.com")
	git(t, dir, "add", ".")
	git(t, dir, "commit", "--quiet", "--message", "All")
	at := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)

	if err := os.WriteFile(filepath.Join(dir, "new.go"), []byte("package postrider\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := release.Tag(t.Context(), dir, "v0.1.0", at); err == nil || !strings.Contains(err.Error(), "new.go") {
		t.Errorf("with a file that is not committed: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "new.go")); err != nil {
		t.Fatal(err)
	}
	if _, err := release.Tag(t.Context(), dir, "0.1", at); err == nil {
		t.Error("0.1 was released")
	}

	tags, err := release.Tag(t.Context(), dir, "v0.1.0", at)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(tags, " "); got != "v0.1.0 b/v0.1.0" {
		t.Errorf("tags: %s", got)
	}
	mod := git(t, dir, "show", "b/v0.1.0:b/go.mod")
	if !strings.Contains(mod, release.Path+" v0.1.0") || strings.Contains(mod, "replace") {
		t.Errorf("b/go.mod at the tag:\n%s", mod)
	}
	if sum := git(t, dir, "show", "b/v0.1.0:b/go.sum"); strings.Count(sum, release.Path+" v0.1.0") != 2 {
		t.Errorf("b/go.sum at the tag:\n%s", sum)
	}
	changelog := git(t, dir, "show", "v0.1.0:CHANGELOG.md")
	for _, want := range []string{"## [Unreleased]\n\n## [0.1.0] - 2026-11-23\n\n### Added", "/compare/v0.1.0...main", "\n[0.1.0]: https://"} {
		if !strings.Contains(changelog, want) {
			t.Errorf("the changelog has no %q:\n%s", want, changelog)
		}
	}
	chart := git(t, dir, "show", "v0.1.0:deploy/helm/postrider/Chart.yaml", "v0.1.0:deploy/kubernetes/postrider.yaml")
	if chart != "version: 0.1.0\nappVersion: 0.1.0\nimage: postrider:v0.1.0\n" {
		t.Errorf("the chart and the manifests at the tag:\n%s", chart)
	}
	if _, err := release.Tag(t.Context(), dir, "v0.1.0", at); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("the same version twice: %v", err)
	}
	if _, err := release.Tag(t.Context(), dir, "v0.1.1", at); err == nil || !strings.Contains(err.Error(), "nothing to release") {
		t.Errorf("a release without a change: %v", err)
	}
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", args, err, out)
	}
	return string(out)
}
