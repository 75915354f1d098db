package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/postrider/postrider"

// documented are the packages that check the documentation.
var documented = []string{module + "/itest/docs", module + "/cmd/postrider/internal/cli/pages"}

// commandLine is the folder of the program's commands, and commandTests the package with the tests of most of them: one program for
// all, because each links all stores and clients.
const (
	commandLine  = module + "/cmd/postrider/internal/cli"
	commandTests = commandLine + "/commands"
)

// slow are the packages whose tests take longer than about twenty seconds, by their path in the repository, the slowest first.
var slow = []string{
	"/itest/faults",
	"/itest/crash",
	"/store/postgres",
	"/itest/sqlite",
	"/itest/release",
	"/itest/mysql",
	"/itest/inbox",
	"/broker/nats",
	"/relay",
	"/itest/web",
	"/itest/operations",
	"/store/memory",
	"/telemetry",
	"/cmd/postrider/internal/shopdemo",
	"/telemetry/internal/scenario",
	"/broker/kafka",
	"/saga/sagatest",
	"/cmd/postrider/internal/cli/serve",
	"/broker/rabbitmq",
	"/cmd/postrider/internal/cli/mcp",
	"/itest/languages",
	"/admin/web",
	"/itest/docs",
	"/broker/webhook",
	"/broker/redis",
	"/relay/internal/schedule",
	"/cmd/postrider/internal/cli/relay",
	"/saga",
	"/cmd/postrider/internal/cli/pages",
	"/cmd/postrider/internal/demo",
	"/cmd/postrider/internal/cli/demo",
	"/examples/caseapproval",
}

// listed is the part of go list -json output that is needed.
type listed struct {
	Dir, ImportPath                    string
	Imports, TestImports, XTestImports []string
	TestGoFiles, XTestGoFiles          []string
}

func (p listed) tested() bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 }

// list returns the packages of go list's patterns.
func list(patterns []string) ([]listed, error) {
	args := append([]string{"list", "-json=Dir,ImportPath,Imports,TestImports,XTestImports,TestGoFiles,XTestGoFiles"}, patterns...)
	out, err := output("go", args...)
	if err != nil {
		return nil, err
	}
	var all []listed
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

// longFirst sorts slow packages to the front and keeps the order of the others. go test runs them in this order.
func longFirst(packages []listed) []listed {
	rank := func(p listed) int {
		if i := slices.IndexFunc(slow, func(end string) bool { return p.ImportPath == module+end }); i >= 0 {
			return i
		}
		return len(slow)
	}
	return slices.SortedStableFunc(slices.Values(packages), func(a, b listed) int { return cmp.Compare(rank(a), rank(b)) })
}

// changedFiles are the absolute paths of files that differ from a revision and of untracked files.
func changedFiles(revision string) ([]string, error) {
	top, err := output("git", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	root := strings.TrimSpace(string(top))
	// Compare with the merge base, so that later changes on the revision's branch do not count.
	base, err := output("git", "merge-base", revision, "HEAD")
	if err != nil {
		return nil, err
	}
	tracked, err := output("git", "-C", root, "diff", "--name-only", "-z", strings.TrimSpace(string(base)))
	if err != nil {
		return nil, err
	}
	untracked, err := output("git", "-C", root, "ls-files", "--others", "--exclude-standard", "-z")
	if err != nil {
		return nil, err
	}
	var files []string
	for name := range strings.SplitSeq(string(tracked)+string(untracked), "\x00") {
		if name != "" {
			files = append(files, filepath.Join(root, name))
		}
	}
	return files, nil
}

// affected are the packages with tests that contain one of the files, and those that import one of these. Documentation belongs to
// the packages that check it, and commands to the one that tests them.
func affected(all []listed, files []string) (changed, importers []listed) {
	byDir := make(map[string]listed)
	for _, p := range all {
		byDir[p.Dir] = p
	}
	differs := make(map[string]bool)
	for _, file := range files {
		if p, ok := holder(byDir, file); ok {
			differs[p.ImportPath] = true
			if !p.tested() && strings.HasPrefix(p.ImportPath, commandLine+"/") {
				differs[commandTests] = true
			}
		}
	}
	pages := slices.ContainsFunc(files, func(file string) bool { return filepath.Ext(file) == ".md" })
	for _, p := range all {
		switch {
		case !p.tested():
		case differs[p.ImportPath], pages && slices.Contains(documented, p.ImportPath):
			changed = append(changed, p)
		case slices.ContainsFunc(slices.Concat(p.Imports, p.TestImports, p.XTestImports), func(i string) bool { return differs[i] }):
			importers = append(importers, p)
		}
	}
	return changed, importers
}

// quick are the packages that answer within a minute together: neither slow nor a test of whole programs, of which each links all
// clients. The others are left to a run of all tests.
func quick(importers []listed) (chosen, left []listed) {
	for _, p := range importers {
		path := strings.TrimPrefix(p.ImportPath, module)
		whole := slices.ContainsFunc([]string{"/cmd/", "/itest/", "/examples/", "/bench"}, func(dir string) bool { return strings.HasPrefix(path, dir) })
		if whole || slices.Contains(slow, path) {
			left = append(left, p)
		} else {
			chosen = append(chosen, p)
		}
	}
	return chosen, left
}

// holder returns the package of a file: a Go file's folder; for another file, which the package may embed or read in
// tests, the nearest parent folder that is a package. The root package contains only its own Go files and test data.
func holder(byDir map[string]listed, file string) (listed, bool) {
	dir, ext := filepath.Dir(file), filepath.Ext(file)
	if ext == ".md" {
		return listed{}, false
	}
	if p, ok := byDir[dir]; ok {
		return p, p.ImportPath != module || ext == ".go"
	}
	for rest := filepath.Base(dir); dir != filepath.Dir(dir); rest = filepath.Join(filepath.Base(dir), rest) {
		dir = filepath.Dir(dir)
		if p, ok := byDir[dir]; ok {
			return p, p.ImportPath != module || strings.HasPrefix(rest, "testdata")
		}
	}
	return listed{}, false
}

func output(name string, args ...string) ([]byte, error) {
	out, err := exec.Command(name, args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, args[0], err, exit.Stderr)
	}
	return out, err
}
