package pages_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience limits every wait for something that must happen.
const patience = 3 * time.Minute

// interrupt is what Ctrl+C writes into a terminal, and endOfInput what Ctrl+D does.
const interrupt, endOfInput = "\x03", "\x04"

// terminal is a command that runs in a terminal.
type terminal struct {
	cmd    *exec.Cmd
	master *os.File
	ended  chan struct{} // all output was read, and the command has ended
	code   int

	mu      sync.Mutex
	out     strings.Builder
	changed chan struct{}
}

// open starts a command of bash in a terminal of its own.
func open(t *testing.T, dir string, environ []string, command string) *terminal {
	t.Helper()
	master, slave, err := openTerminal()
	if err != nil {
		t.Fatal(err)
	}
	x := &terminal{master: master, ended: make(chan struct{}), changed: make(chan struct{})}
	x.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), "bash", "-o", "pipefail", "-c", command)
	x.cmd.Dir, x.cmd.Env = dir, environ
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = slave, slave, slave
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = x.cmd.Start()
	if err := errors.Join(err, slave.Close()); err != nil {
		t.Fatal(err)
	}
	go x.read()
	t.Cleanup(func() {
		_ = syscall.Kill(-x.cmd.Process.Pid, syscall.SIGKILL) // usually it has ended
		<-x.ended
		_ = master.Close()
	})
	return x
}

// openTerminal returns both ends of a terminal.
func openTerminal() (master, slave *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	var number int
	err = errors.Join(
		unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0),
		unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 100}),
	)
	if err == nil {
		number, err = unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	}
	if err == nil {
		slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	return master, slave, nil
}

func (x *terminal) read() {
	defer close(x.ended)
	buffer := make([]byte, 64<<10)
	for {
		n, err := x.master.Read(buffer)
		x.mu.Lock()
		x.out.Write(buffer[:n])
		close(x.changed)
		x.changed = make(chan struct{})
		x.mu.Unlock()
		if err != nil { // the last process has closed the other end
			break
		}
	}
	_ = x.cmd.Wait() // the exit code says it
	x.code = x.cmd.ProcessState.ExitCode()
}

// text is what was written so far, as lines.
func (x *terminal) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return strings.ReplaceAll(x.out.String(), "\r\n", "\n")
}

// tail is the end of what was written so far: live screens write much.
func (x *terminal) tail() string {
	text := x.text()
	return text[max(0, len(text)-4000):]
}

// typed types what a reader would.
func (x *terminal) typed(t *testing.T, keys string) {
	t.Helper()
	if _, err := x.master.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// await waits until something was written, and says so; false is that the command has ended before.
func (x *terminal) await(t *testing.T, wanted *regexp.Regexp) bool {
	t.Helper()
	for limit := time.After(patience); ; {
		x.mu.Lock()
		changed, found := x.changed, wanted.MatchString(x.out.String())
		x.mu.Unlock()
		if found {
			return true
		}
		select {
		case <-changed:
		case <-x.ended:
			return wanted.MatchString(x.text())
		case <-limit:
			t.Fatalf("%s: %s was not written; this was:\n%s", x.cmd, wanted, x.tail())
		}
	}
}

var question = regexp.MustCompile(`\[y/N\] `)

// end waits until the command has ended, says yes to its question, and returns its exit code.
func (x *terminal) end(t *testing.T) int {
	t.Helper()
	if x.await(t, question) {
		x.typed(t, "y\n")
	}
	select {
	case <-x.ended:
		return x.code
	case <-time.After(patience):
		t.Fatalf("%s: it does not end, and wrote:\n%s", x.cmd, x.tail())
		return -1
	}
}
