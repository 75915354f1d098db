package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Postrider builds the binary as make programs and releases do, and returns its path. All packages share one file, which go build leaves as it is
// when it is up to date: after make programs, they do not link it again.
func Postrider() (path string, err error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		return "", errors.New("build postrider: the test does not know its source file")
	}
	root := filepath.Join(filepath.Dir(file), "..", "..")
	path = filepath.Join(root, ".cache", "bin", "postrider")
	build := exec.Command("go", "build", "-trimpath", "-o", path, "./cmd/postrider")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build postrider: %w\n%s", err, out)
	}
	return path, nil
}
