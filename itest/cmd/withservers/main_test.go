package main_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestServersLiveAsLongAsTheCommand: missing servers are started, the exit code is returned and nothing is left running.
func TestServersLiveAsLongAsTheCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := withservers(t, "POSTRIDER_TEST_POSTGRES=", "POSTRIDER_TEST_MYSQL=", "TMPDIR="+openFolder(t, dir))
	cmd.Args = append(cmd.Args, "-with", "POSTGRES,MYSQL", "sh", "-c", "echo $POSTRIDER_TEST_POSTGRES; echo $POSTRIDER_TEST_MYSQL; exit 7")
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 7 {
		t.Fatalf("got %v, want exit code 7", err)
	}
	lines := strings.Fields(string(out))
	if len(lines) != 2 {
		t.Fatalf("the command saw %q, want two URLs", out)
	}
	for _, line := range lines {
		awaitGone(t, line)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// TestServerStartsWhenItIsAskedFor: it starts only on request, once, and is gone when the command has ended.
func TestServerStartsWhenItIsAskedFor(t *testing.T) {
	t.Parallel()
	dir := openFolder(t, t.TempDir())
	cmd := withservers(t, "POSTRIDER_TEST_NATS=", "POSTRIDER_TEST_REDIS=", "POSTRIDER_TEST_KAFKA=kafka://mine:9092", "TMPDIR="+dir)
	cmd.Args = append(cmd.Args, "sh", "-c", "echo $POSTRIDER_TEST_SERVERS; sleep 600")
	control := firstLine(t, cmd)
	if found := logs(t, dir); len(found) > 0 {
		t.Errorf("before anybody asked, there are %q", found)
	}
	nats := ask(t, control, "POSTRIDER_TEST_NATS", http.StatusOK)
	if again := ask(t, control, "POSTRIDER_TEST_NATS", http.StatusOK); again != nats {
		t.Errorf("asked twice, got %s and %s", nats, again)
	}
	if mine := ask(t, control, "POSTRIDER_TEST_KAFKA", http.StatusOK); mine != "kafka://mine:9092" {
		t.Errorf("got %s instead of the server that is named in the environment", mine)
	}
	if text := ask(t, control, "POSTRIDER_TEST_UNKNOWN", http.StatusInternalServerError); !strings.Contains(text, "POSTRIDER_TEST_UNKNOWN") {
		t.Errorf("the error about an unknown name is %q", text)
	}
	if found := logs(t, dir); len(found) != 1 || filepath.Base(found[0]) != "nats.log" {
		t.Errorf("there are the logs %q, want that of NATS only", found)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // ended by the signal
	awaitGone(t, nats)
}

// logs are those of the servers in withservers' folder.
func logs(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "postrider-test-*", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// ask requests a name as package servertest does.
func ask(t *testing.T, control, name string, status int) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, control+"/"+name, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		t.Fatalf("%s: %s, %v: %s", name, resp.Status, err, text)
	}
	return strings.TrimSpace(string(text))
}

// TestSignalEndsAll: an interrupted run forwards the signal and stops its servers.
func TestSignalEndsAll(t *testing.T) {
	t.Parallel()
	cmd, address := running(t)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	const terminated = 128 + int(syscall.SIGTERM)
	if exit, ok := errors.AsType[*exec.ExitError](cmd.Wait()); !ok || exit.ExitCode() != terminated {
		t.Errorf("got %v, want exit code %d", exit, terminated)
	}
	awaitGone(t, address)
}

// TestKillEndsAll: nothing outlives the program, even when it cannot clean up.
func TestKillEndsAll(t *testing.T) {
	t.Parallel()
	cmd, address := running(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	awaitGone(t, address)
}

// missing matches gcc among the programs, and its package.
var missing = regexp.MustCompile(`the tests need gcc\b.*: install it \(on Debian: apt-get install .*\bgcc\b`)

// TestMissingProgramIsNamed: if nothing can be installed, the output says what to install.
func TestMissingProgramIsNamed(t *testing.T) {
	t.Parallel()
	cmd := withservers(t, "PATH="+t.TempDir(), "CC=", "TMPDIR="+t.TempDir())
	cmd.Args = append(cmd.Args, "true")
	out, err := cmd.CombinedOutput()
	if err == nil || !missing.Match(out) {
		t.Errorf("got %v and %q, want what to install", err, out)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	out, err := withservers(t).CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("usage: withservers [-with names] command")) {
		t.Errorf("got %v and %q, want usage", err, out)
	}
}

// running starts the program with a NATS server and a command that waits.
func running(t *testing.T) (*exec.Cmd, string) {
	t.Helper()
	cmd := withservers(t, "POSTRIDER_TEST_NATS=", "TMPDIR="+openFolder(t, t.TempDir()))
	cmd.Args = append(cmd.Args, "-with", "NATS", "sh", "-c", "echo $POSTRIDER_TEST_NATS; sleep 600")
	return cmd, firstLine(t, cmd)
}

// firstLine starts a command and returns the first line of its output.
func firstLine(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the command did not start: %v", err)
	}
	return strings.TrimSpace(line)
}

// program is the program under test.
var program string

func TestMain(m *testing.M) {
	code, err := withProgram(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// withProgram builds the program, which is removed after run.
func withProgram(run func() int) (code int, err error) {
	dir, err := os.MkdirTemp("", "withservers-test-*")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program = filepath.Join(dir, "withservers")
	build := exec.Command("go", "build", "-trimpath", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make programs
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build: %w\n%s", err, out)
	}
	return run(), nil
}

// withservers prepares a run of the program with additions to the environment.
func withservers(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// openFolder makes a test's folder accessible to other users: PostgreSQL does not run as root.
func openFolder(t *testing.T, dir string) string {
	t.Helper()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// awaitGone waits until nothing listens at a URL any longer.
func awaitGone(t *testing.T, address string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		t.Fatalf("no URL: %q", address)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		conn, err := net.Dial("tcp", u.Host)
		if err != nil {
			return
		}
		_ = conn.Close()
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatalf("%s still listens", address)
		}
	}
}
