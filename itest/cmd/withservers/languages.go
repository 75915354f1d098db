package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
)

// languages is the folder with what the programs in other languages need, which make languages fills.
func (s *supply) languages() (string, error) {
	root, err := repository(s.ctx)
	if err != nil {
		return "", err
	}
	for _, name := range []string{"python3", "npm", "java", "mvn"} {
		if _, err := s.program(name); err != nil {
			return "", err
		}
	}
	fill := exec.CommandContext(s.ctx, "make", "--silent", "languages")
	fill.Dir = root
	if out, err := fill.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make languages: %w\n%s", err, out)
	}
	return filepath.Join(root, ".cache", "languages"), nil
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
