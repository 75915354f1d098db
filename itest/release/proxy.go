package release

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

// file is a file for the zip of a module.
type file struct {
	path    string
	content []byte
}

func newFile(name string, content []byte) modzip.File { return file{name, content} }

func (f file) Path() string                 { return f.path }
func (f file) Open() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(f.content)), nil }

func (f file) Lstat() (fs.FileInfo, error) { return f, nil }

func (f file) Name() string     { return path.Base(f.path) }
func (f file) Size() int64      { return int64(len(f.content)) }
func (file) Mode() fs.FileMode  { return 0o644 }
func (file) ModTime() time.Time { return time.Time{} }
func (file) IsDir() bool        { return false }
func (file) Sys() any           { return nil }

// WriteProxy writes a module proxy that serves this version of the modules, for use as GOPROXY=file://…
func (r *Release) WriteProxy(dir string, at time.Time) error {
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{r.Version, at})
	if err != nil {
		return err
	}
	for _, m := range r.Modules {
		escaped, err := module.EscapePath(m.Path)
		if err != nil {
			return err
		}
		for name, content := range map[string][]byte{
			"list": []byte(r.Version + "\n"), r.Version + ".info": info,
			r.Version + ".mod": r.Tree[path.Join(m.Dir, "go.mod")], r.Version + ".zip": r.zips[m.Path],
		} {
			if err := writeFile(filepath.Join(dir, filepath.FromSlash(escaped), "@v", name), content); err != nil {
				return err
			}
		}
	}
	return nil
}
