package release

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Tag commits a release in a repository and tags its modules, in the order in which they require each other. It pushes nothing, and
// returns the tags.
func Tag(ctx context.Context, root, version string, at time.Time) (tags []string, err error) {
	if err := CheckVersion(version); err != nil {
		return nil, err
	}
	if err := checkClean(ctx, root, version); err != nil {
		return nil, err
	}
	before, err := ReadTree(ctx, root)
	if err != nil {
		return nil, err
	}
	changelog, err := withRelease(string(before["CHANGELOG.md"]), version, at)
	if err != nil {
		return nil, err
	}
	after, err := before.with("CHANGELOG.md", []byte(changelog)).withChart(version)
	if err != nil {
		return nil, err
	}
	r, err := Prepare(after, version)
	if err != nil {
		return nil, err
	}
	if err := writeChanged(root, before, r.Tree); err != nil {
		return nil, err
	}
	if _, err := git(ctx, root, "add", "--all"); err != nil { // the work tree had no other changes
		return nil, err
	}
	if _, err := git(ctx, root, "commit", "--quiet", "--message", "Release "+version); err != nil {
		return nil, err
	}
	for _, m := range r.Modules {
		if !m.Published {
			continue
		}
		tag := m.Tag(version)
		if _, err := git(ctx, root, "tag", "--annotate", "--message", m.Path+" "+version, tag); err != nil {
			return tags, fmt.Errorf("%w\nthe release is committed; the tags so far: %s", err, strings.Join(tags, " "))
		}
		tags = append(tags, tag)
	}
	return tags, nil
}

// checkClean says why a release cannot be committed.
func checkClean(ctx context.Context, root, version string) error {
	status, err := git(ctx, root, "status", "--porcelain")
	if err != nil {
		return err
	}
	if status != "" {
		return errors.New("the work tree has changes: commit or remove them first\n" + status)
	}
	tags, err := git(ctx, root, "tag", "--list")
	if err != nil {
		return err
	}
	if slices.Contains(strings.Fields(tags), version) {
		return fmt.Errorf("there is a tag %s already: a version is released once", version)
	}
	return nil
}

// writeChanged writes the files of a tree that differ from another.
func writeChanged(root string, before, after Tree) error {
	for name, content := range after {
		if string(before[name]) == string(content) {
			continue
		}
		if err := writeFile(filepath.Join(root, filepath.FromSlash(name)), content); err != nil {
			return err
		}
	}
	return nil
}
