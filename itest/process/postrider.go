package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Postrider builds the binary of the repository at root as make programs and releases do, and returns its path. All packages share one
// file, which go build leaves as it is when it is up to date: after make programs, they do not link it again.
func Postrider(root string) (path string, err error) {
	if path, err = filepath.Abs(filepath.Join(root, ".cache", "bin", "postrider")); err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-trimpath", "-o", path, "./cmd/postrider")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build postrider: %w\n%s", err, out)
	}
	return path, nil
}
