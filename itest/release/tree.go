package release

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Tree has the files of a repository, by path.
type Tree map[string][]byte

// ReadTree reads the files of a repository that git tracks or would add.
func ReadTree(ctx context.Context, root string) (Tree, error) {
	names, err := git(ctx, root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	t := Tree{}
	for name := range strings.SplitSeq(strings.TrimSuffix(names, "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, and not yet committed
		}
		if err != nil {
			return nil, err
		}
		t[name] = content
	}
	return t, nil
}

// with returns a copy in which one file is different.
func (t Tree) with(name string, content []byte) Tree {
	changed := maps.Clone(t)
	changed[name] = content
	return changed
}

// Write writes the files below a folder.
func (t Tree) Write(dir string) error {
	for name, content := range t {
		if err := writeFile(filepath.Join(dir, filepath.FromSlash(name)), content); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes a file and creates its folder.
func writeFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}

// git runs git in a repository and returns what it prints.
func git(ctx context.Context, root string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = root
	return output(cmd)
}

// output runs a command and returns what it prints.
func output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.Bytes())
	}
	return stdout.String(), nil
}
