package release

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Place is a folder in which a release is used as its users will use it: with a module proxy that serves it, the public one, and a
// module cache of its own.
type Place struct {
	Dir     string
	Release *Release
	modules string // the folder of its module cache
	env     []string
}

// NewPlace returns a place in an empty folder, with a module cache in another one, which several places of one release can share.
// Modules of others come from this machine's module cache if they are in it, otherwise from the public proxy.
func NewPlace(ctx context.Context, dir, modules string) (*Place, error) {
	public, err := output(exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOPROXY"))
	if err != nil {
		return nil, err
	}
	cache, proxies, _ := strings.Cut(strings.TrimSpace(public), "\n")
	p, bin := &Place{Dir: dir, modules: modules}, filepath.Join(dir, "bin")
	p.env = []string{
		"GOPROXY=" + strings.Join([]string{"file://" + p.proxy(), "file://" + filepath.Join(cache, "cache", "download"), cmp.Or(proxies, "off")}, ","),
		"GOMODCACHE=" + modules,
		"GONOSUMDB=" + Path, // the checksum database has no version that is not published
		"GOFLAGS=-modcacherw -trimpath -buildvcs=false",
		"GOWORK=off",
		"CGO_ENABLED=0",
		"GOBIN=" + bin,
		"PATH=" + bin + string(filepath.ListSeparator) + os.Getenv("PATH"),
	}
	return p, nil
}

func (p *Place) proxy() string { return filepath.Join(p.Dir, "proxy") }

// Put writes a release, as a tree and as a module proxy, in place of the last one.
func (p *Place) Put(r *Release) error {
	p.Release = r
	if err := r.WriteProxy(p.proxy(), time.Unix(0, 0).UTC()); err != nil {
		return err
	}
	return r.Tree.Write(filepath.Join(p.Dir, "tree"))
}

// Command returns a command for a folder of the place, with the installed binary in its path.
func (p *Place) Command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), p.env...)
	return cmd
}

// Run runs a program in a folder of the place, and returns what it prints.
func (p *Place) Run(ctx context.Context, dir, name string, args ...string) (string, error) {
	return output(p.Command(ctx, filepath.Join(p.Dir, dir), name, args...))
}

// ProgramOf returns the first program of a Markdown text.
func ProgramOf(markdown string) (string, error) {
	for _, block := range strings.Split(markdown, "```go\n")[1:] {
		if program, _, ended := strings.Cut(block, "\n```"); ended && strings.HasPrefix(program, "package main\n") {
			return program + "\n", nil
		}
	}
	return "", fmt.Errorf("no block of the text is a program: %w", os.ErrNotExist)
}
