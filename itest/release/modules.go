// Package release prepares a release of the repository's modules: their go.mod files and tags, a module proxy that serves them
// before they are published, the binaries, and the image.
package release

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

// Path is the path of the root module, with which the paths of the other modules begin.
const Path = "github.com/postrider/postrider"

// Command is the folder of the binary's module and main package.
const Command = "cmd/postrider"

// development are the folders of modules that are not published.
var development = []string{"bench", "examples/stacks", "itest"}

// Module is a module of the repository.
type Module struct {
	// Dir is its folder, "." for the root module.
	Dir  string
	Path string
	// Published says whether a release has a tag of it.
	Published bool

	file *modfile.File
}

// Tag is the tag of a version of the module.
func (m Module) Tag(version string) string { return path.Join(m.Dir, version) }

// requires says whether the module requires another.
func (m Module) requires(other Module) bool {
	return slices.ContainsFunc(m.file.Require, func(r *modfile.Require) bool { return r.Mod.Path == other.Path })
}

// Modules returns the modules that go.work lists, each after those that it requires.
func (t Tree) Modules() ([]Module, error) {
	work, err := modfile.ParseWork("go.work", t["go.work"], nil)
	if err != nil {
		return nil, err
	}
	var all []Module
	for _, use := range work.Use {
		dir := path.Clean(use.Path)
		name := path.Join(dir, "go.mod")
		file, err := modfile.Parse(name, t[name], nil)
		if err != nil {
			return nil, err
		}
		if want := path.Join(Path, dir); file.Module == nil || file.Module.Mod.Path != want {
			return nil, fmt.Errorf("%s: the module must be %s", name, want)
		}
		all = append(all, Module{Dir: dir, Path: file.Module.Mod.Path, Published: !slices.Contains(development, dir), file: file})
	}
	return inOrder(all)
}

// inOrder sorts modules so that each comes after those that it requires.
func inOrder(all []Module) ([]Module, error) {
	var sorted []Module
	for len(all) > 0 {
		ready := slices.IndexFunc(all, func(m Module) bool { return !slices.ContainsFunc(all, m.requires) })
		if ready < 0 {
			return nil, fmt.Errorf("the modules of go.work require each other in a circle: %s is in it", all[0].Path)
		}
		sorted = append(sorted, all[ready])
		all = slices.Delete(all, ready, ready+1)
	}
	return sorted, nil
}

// files lists the files of a module: those to which no go.mod file is nearer than the module's.
func (t Tree) files(m Module) []string {
	var names []string
	for name := range t {
		dir := path.Dir(name)
		for ; dir != "."; dir = path.Dir(dir) {
			if _, ok := t[path.Join(dir, "go.mod")]; ok {
				break
			}
		}
		if dir == m.Dir {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// withWork returns the tree with a go.work file that replaces the versions that modules require of each other by the work tree.
func (t Tree) withWork() (Tree, error) {
	modules, err := t.Modules()
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork("go.work", t["go.work"], nil)
	if err != nil {
		return nil, err
	}
	wanted := map[module.Version]string{}
	for _, m := range modules {
		for _, other := range modules {
			if version, required := versions(m.file)[other.Path]; required {
				wanted[module.Version{Path: other.Path, Version: version}] = "./" + strings.TrimPrefix(other.Dir, ".")
			}
		}
	}
	for _, r := range work.Replace {
		if _, ok := wanted[r.Old]; !ok && inRepository(r.Old.Path) {
			if err := work.DropReplace(r.Old.Path, r.Old.Version); err != nil {
				return nil, err
			}
		}
	}
	for _, old := range slices.SortedFunc(maps.Keys(wanted), func(a, b module.Version) int { return cmp.Compare(a.Path, b.Path) }) {
		if err := work.AddReplace(old.Path, old.Version, wanted[old], ""); err != nil {
			return nil, err
		}
	}
	work.Cleanup()
	return t.with("go.work", modfile.Format(work.Syntax)), nil
}

// inRepository says whether a module is one of this repository.
func inRepository(path string) bool { return path == Path || strings.HasPrefix(path, Path+"/") }

// versions are what a go.mod file requires, by module path.
func versions(file *modfile.File) map[string]string {
	all := map[string]string{}
	for _, r := range file.Require {
		all[r.Mod.Path] = r.Mod.Version
	}
	return all
}
