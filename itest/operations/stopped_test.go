package operations_test

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider/itest/process"
)

// TestDoctorOfAStoppedDatabase: while a real server is stopped (SIGSTOP), the kernel accepts its connections and nobody answers. The doctor
// ends with its time, says so, and finds nothing wrong as soon as the server continues.
func TestDoctorOfAStoppedDatabase(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "PostgreSQL.") //nolint:usetesting // the folder of a test belongs to root, and PostgreSQL runs as another user
	must(t, err)
	must(t, os.Chmod(dir, 0o711))
	server, err := process.StartPostgres(t.Context(), dir)
	must(t, err)
	t.Cleanup(func() {
		defer func() { _ = os.RemoveAll(dir) }()
		_ = server.Signal(syscall.SIGCONT)
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	run := func(args ...string) (code int, out string) {
		t.Helper()
		text, err := exec.CommandContext(t.Context(), binary, append(args, "--store", server.URL)...).CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return exit.ExitCode(), string(text)
		}
		must(t, err)
		return 0, string(text)
	}
	if code, out := run("migrate", "up"); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	must(t, server.Signal(syscall.SIGSTOP))
	began := time.Now()
	code, out := run("doctor", "schema", "--timeout", "2s")
	if took := time.Since(began); code != 1 || out == "" || took < 2*time.Second || took > time.Minute {
		t.Errorf("exit code %d after %s\n%s", code, took, out)
	}
	t.Log(out)
	must(t, server.Signal(syscall.SIGCONT))
	if code, out := run("doctor", "schema", "--timeout", "5m"); code != 0 {
		t.Errorf("when it continues: exit code %d\n%s", code, out)
	}
}
