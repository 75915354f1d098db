package release

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/mod/modfile"
)

// unreleased is what modules require of each other before the first release. go.work takes the work tree instead.
const unreleased = "v0.0.0"

// Tidy runs go mod tidy in every module of a repository, with the other modules as they are in the work tree. Without it, go mod tidy
// would look for their published versions.
func Tidy(ctx context.Context, root string) (err error) {
	before, err := ReadTree(ctx, root)
	if err != nil {
		return err
	}
	modules, err := before.Modules()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "postrider-tidy-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	place, err := NewPlace(ctx, dir, filepath.Join(dir, "modules"))
	if err != nil {
		return err
	}
	after := before
	for i, m := range modules { // those that others require come first
		r, err := Prepare(after, fmt.Sprintf("v0.0.1-tidy.%d", i)) // the module cache knows no older state of this version
		if err != nil {
			return err
		}
		if err := place.Put(r); err != nil {
			return err
		}
		if _, err := place.Run(ctx, path.Join("tree", m.Dir), "go", "mod", "tidy"); err != nil {
			return err
		}
		if after, err = after.tidied(m, modules, filepath.Join(dir, "tree")); err != nil {
			return err
		}
	}
	if after, err = after.withWork(); err != nil {
		return err
	}
	return writeChanged(root, before, after)
}

// tidied returns the tree with the go.mod and go.sum files of a module as they are in a folder. The versions of the repository's
// modules stay as they were.
func (t Tree) tidied(m Module, modules []Module, folder string) (Tree, error) {
	name := path.Join(m.Dir, "go.mod")
	text, err := os.ReadFile(filepath.Join(folder, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	file, err := modfile.Parse(name, text, nil)
	if err != nil {
		return nil, err
	}
	was := versions(m.file)
	for _, other := range modules {
		if _, required := versions(file)[other.Path]; !required {
			continue
		}
		version, known := was[other.Path]
		if !known {
			version = unreleased
		}
		if err := file.AddRequire(other.Path, version); err != nil {
			return nil, err
		}
	}
	file.Cleanup()
	if text, err = file.Format(); err != nil {
		return nil, err
	}
	changed := t.with(name, text)
	name = path.Join(m.Dir, "go.sum")
	sums, err := os.ReadFile(filepath.Join(folder, filepath.FromSlash(name)))
	if errors.Is(err, os.ErrNotExist) {
		return changed, nil
	}
	ours, _ := splitSums(t[name])
	_, others := splitSums(sums)
	return changed.with(name, joinSums(ours, others)), err
}
