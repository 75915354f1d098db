package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// axeVersion is the version of axe-core, which checks pages for accessibility and is released on npm.
const axeVersion = "4.14.1"

// axe is the path of axe-core in .cache of the repository; if it is missing, npm fetches it.
func (s *supply) axe() (string, error) {
	const variable = "POSTRIDER_TEST_AXE"
	root, err := repository(s.ctx)
	if err != nil {
		return "", fmt.Errorf("%w, or set %s", err, variable)
	}
	home := filepath.Join(root, ".cache", "axe-core-"+axeVersion)
	script := filepath.Join(home, "node_modules", "axe-core", "axe.min.js")
	if _, err := os.Stat(script); err == nil {
		return script, nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	npm, err := s.program("npm")
	if err != nil {
		return "", err
	}
	fmt.Fprintln(os.Stderr, "withservers: fetching axe-core", axeVersion)
	cmd := exec.CommandContext(s.ctx, npm, "install", "--prefix", home, "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "axe-core@"+axeVersion)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("fetch axe-core %s: %w\n%s; or set %s to the path of axe.min.js", axeVersion, err, out, variable)
	}
	return script, nil
}
