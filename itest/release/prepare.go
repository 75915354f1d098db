package release

import (
	"archive/zip"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/sumdb/dirhash"
	modzip "golang.org/x/mod/zip"
)

// Release is a version of all modules.
type Release struct {
	Version string
	// Tree has the files of the release: each module requires this version of the others, and replaces nothing.
	Tree    Tree
	Modules []Module
	zips    map[string][]byte // by module path
}

// CheckVersion says what is wrong with a version.
func CheckVersion(version string) error {
	if semver.Canonical(version) != version || semver.Major(version) > "v1" {
		return fmt.Errorf("%q is no version of this project: want v0.1.0, v1.2.3 or v1.2.3-rc.1", version)
	}
	return nil
}

// Prepare makes all modules require the same version of each other. The tree that it gets stays as it is.
func Prepare(t Tree, version string) (*Release, error) {
	if err := CheckVersion(version); err != nil {
		return nil, err
	}
	r := &Release{Version: version, Tree: maps.Clone(t), zips: map[string][]byte{}}
	var err error
	if r.Modules, err = t.Modules(); err != nil {
		return nil, err
	}
	sums := map[string][]string{} // lines of go.sum, by module path
	for _, m := range r.Modules {
		if err := r.require(m); err != nil {
			return nil, err
		}
		r.addSums(m, sums)
		if r.zips[m.Path], err = r.zip(m); err != nil {
			return nil, fmt.Errorf("zip of %s: %w", m.Path, err)
		}
		if sums[m.Path], err = r.sums(m); err != nil {
			return nil, fmt.Errorf("sum of %s: %w", m.Path, err)
		}
	}
	r.Tree, err = r.Tree.withWork()
	return r, err
}

// require makes a module require the release's version of the others.
func (r *Release) require(m Module) error {
	name := path.Join(m.Dir, "go.mod")
	file, err := modfile.Parse(name, r.Tree[name], nil)
	if err != nil {
		return err
	}
	for _, other := range r.Modules {
		if !m.requires(other) {
			continue
		}
		if err := file.AddRequire(other.Path, r.Version); err != nil {
			return err
		}
		if err := file.DropReplace(other.Path, ""); err != nil {
			return err
		}
	}
	file.Cleanup()
	if len(file.Replace) > 0 {
		return fmt.Errorf("%s replaces %s: go install refuses such a module, and users of other modules do not get the replacement", name, file.Replace[0].Old.Path)
	}
	r.Tree[name], err = file.Format()
	return err
}

// addSums gives a module's go.sum file the sums of the modules that it requires, and removes those of other versions of them.
func (r *Release) addSums(m Module, sums map[string][]string) {
	name := path.Join(m.Dir, "go.sum")
	_, others := splitSums(r.Tree[name])
	var ours []string
	for _, other := range r.Modules {
		if m.requires(other) {
			ours = append(ours, sums[other.Path]...)
		}
	}
	if text := joinSums(ours, others); len(text) > 0 {
		r.Tree[name] = text
	}
}

// splitSums returns the lines of a go.sum file: those of the repository's modules, and the others.
func splitSums(text []byte) (ours, others []string) {
	for line := range strings.Lines(string(text)) {
		if of, _, _ := strings.Cut(line, " "); inRepository(of) {
			ours = append(ours, line)
		} else {
			others = append(others, line)
		}
	}
	return ours, others
}

// joinSums returns the go.sum file with these lines.
func joinSums(ours, others []string) []byte {
	lines := slices.Concat(ours, others)
	slices.SortStableFunc(lines, func(a, b string) int { return cmp.Compare(strings.Fields(a)[0], strings.Fields(b)[0]) })
	return []byte(strings.Join(lines, ""))
}

// zip returns the zip of a module as a proxy makes it from the tag: with the license of the repository.
func (r *Release) zip(m Module) ([]byte, error) {
	files := []modzip.File{}
	for _, name := range r.Tree.files(m) {
		files = append(files, newFile(strings.TrimPrefix(name, m.Dir+"/"), r.Tree[name]))
	}
	if _, ok := r.Tree[path.Join(m.Dir, "LICENSE")]; !ok {
		files = append(files, newFile("LICENSE", r.Tree["LICENSE"]))
	}
	var out bytes.Buffer
	err := modzip.Create(&out, module.Version{Path: m.Path, Version: r.Version}, files)
	return out.Bytes(), err
}

// sums returns the lines of go.sum for a module whose zip is known.
func (r *Release) sums(m Module) ([]string, error) {
	archive, err := zip.NewReader(bytes.NewReader(r.zips[m.Path]), int64(len(r.zips[m.Path])))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range archive.File {
		names = append(names, f.Name)
	}
	of, err := dirhash.Hash1(names, func(name string) (io.ReadCloser, error) { return archive.Open(name) })
	if err != nil {
		return nil, err
	}
	ofMod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(r.Tree[path.Join(m.Dir, "go.mod")])), nil
	})
	return []string{
		fmt.Sprintf("%s %s %s\n", m.Path, r.Version, of),
		fmt.Sprintf("%s %s/go.mod %s\n", m.Path, r.Version, ofMod),
	}, err
}
