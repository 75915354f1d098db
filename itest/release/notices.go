package release

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/module"
)

// licenseFile matches the files of a module that have its license and its notices.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|copyright|notice|patents)`)

// notices returns the licenses and notices of Go and of all modules that are linked into a binary. A module without a license is an
// error: it could not be distributed.
func (p *Place) notices(ctx context.Context, info *buildinfo.BuildInfo) ([]byte, error) {
	goroot, err := p.Run(ctx, ".", "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.WriteString("Postrider contains the following software, under the licenses given with each.\n")
	if err := addNotices(&out, "Go "+info.GoVersion, strings.TrimSpace(goroot)); err != nil {
		return nil, err
	}
	for _, m := range info.Deps {
		if inRepository(m.Path) {
			continue
		}
		name, err := module.EscapePath(m.Path)
		if err != nil {
			return nil, err
		}
		version, err := module.EscapeVersion(m.Version)
		if err != nil {
			return nil, err
		}
		if err := addNotices(&out, m.Path+" "+m.Version, filepath.Join(p.modules, filepath.FromSlash(name)+"@"+version)); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// addNotices adds the license files of a folder.
func addNotices(out *bytes.Buffer, of, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return e.IsDir() || !licenseFile.MatchString(e.Name()) })
	if len(entries) == 0 {
		return fmt.Errorf("%s has no license file in %s", of, dir)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "\n%s\n%s, %s\n%[1]s\n\n%s\n", strings.Repeat("-", 80), of, e.Name(), bytes.TrimSpace(text))
	}
	return nil
}
