package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
)

// filled is a folder of packages, which a target of the Makefile with its name fills with the help of programs.
func (s *supply) filled(target string, programs ...string) (string, error) {
	root, err := repository(s.ctx)
	if err != nil {
		return "", err
	}
	for _, name := range programs {
		if _, err := s.program(name); err != nil {
			return "", err
		}
	}
	fill := exec.CommandContext(s.ctx, "make", "--silent", target)
	fill.Dir = root
	if out, err := fill.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make %s: %w\n%s", target, err, out)
	}
	return filepath.Join(root, ".cache", target), nil
}

// findPython finds a Python that can create virtual environments, which Debian has in a package of its own.
func findPython(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	if err := exec.Command(path, "-c", "import venv, ensurepip").Run(); err != nil {
		return "", errors.New("python3 has no module venv")
	}
	return path, nil
}
