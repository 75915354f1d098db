package process

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Postrider builds the binary as users build it, and returns its path. All packages share one file, which go build leaves as it is
// when it is up to date: after make programs, they do not link it again.
func Postrider() (path string, err error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/postrider/postrider").Output()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	path = filepath.Join(strings.TrimSpace(string(out)), ".cache", "bin", "postrider")
	if out, err := exec.Command("go", "build", "-o", path, "github.com/postrider/postrider/cmd/postrider").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build postrider: %w\n%s", err, out)
	}
	return path, nil
}
