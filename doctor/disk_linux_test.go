package doctor_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/postrider/postrider/doctor"
)

// TestFixOfAFullDisk: the printed command names what takes the space of a file system, and without that, the finding is gone.
func TestFixOfAFullDisk(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "my data")
	must(t, os.Mkdir(path, 0o755))
	if err := syscall.Mount("tmpfs", path, "tmpfs", 0, "size=4m"); err != nil {
		t.Log("db.disk was not provoked: this user may not mount a file system:", err)
		return
	}
	t.Cleanup(func() { must(t, syscall.Unmount(path, syscall.MNT_DETACH)) })
	look := func() doctor.Result {
		return doctor.Run(t.Context(), []doctor.Check{doctor.Disk(path)}, doctor.Options{}).Results[0]
	}
	if r := look(); r.Outcome != doctor.Passed {
		t.Errorf("an empty one: %+v", r)
	}
	backups := filepath.Join(path, "backups")
	must(t, os.Mkdir(backups, 0o755))
	must(t, os.WriteFile(filepath.Join(backups, "old"), make([]byte, 4_000_000), 0o600))
	r := look()
	if r.Outcome == doctor.Passed || len(r.Findings) != 1 {
		t.Fatalf("a full one: %+v", r)
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", r.Findings[0].Fix[0].Command).CombinedOutput()
	if err != nil || !strings.Contains(string(out), backups) {
		t.Errorf("%s: %v\n%s", r.Findings[0].Fix[0].Command, err, out)
	}
	must(t, os.RemoveAll(backups))
	if r := look(); r.Outcome != doctor.Passed {
		t.Errorf("after the fix: %+v", r)
	}
}
