// Package process runs real processes for tests: servers, and the binary under test. Each is a direct child that ends
// with its parent, however the parent ends, and is only ever signaled by its process ID.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Limits of starting and stopping. A server is slow on a busy machine, and its start is not what the tests are about: the
// limits only end what would hang forever.
const (
	startLimit = 10 * time.Minute
	stopLimit  = 2 * time.Minute
)

// errSlow is the error for a process that did not become ready in time.
var errSlow = fmt.Errorf("it took longer than %s", startLimit)

// Command says what to start and how to detect that it is ready.
type Command struct {
	// Name is used in error messages.
	Name string
	Path string
	Args []string
	// Env is added to this process's environment. Dir is the working directory, "" for this process's.
	Env []string
	Dir string
	// Stdin is the standard input, empty if nil.
	Stdin *os.File
	// User runs the process as another user; nil for the current one.
	User *syscall.Credential
	// Log is the file to which standard output and standard error are appended.
	Log string
	// Ready is a text in the output that signals that the process is ready; "" means at once.
	Ready string
	// StopSignal is the signal that Stop sends, SIGTERM if 0. DeathSignal is the signal that the kernel sends if this
	// process ends first, SIGKILL if 0.
	StopSignal, DeathSignal syscall.Signal
}

// Process is a running command.
type Process struct {
	name string
	log  string
	stop syscall.Signal
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; read after done
}

// Start starts a process and waits until it is ready. If it ends first, or is not ready within ten minutes, the error
// contains the end of its output.
func Start(ctx context.Context, c Command) (*Process, error) {
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	out := &output{log: log, ready: []byte(c.Ready), found: make(chan struct{})}
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Dir = c.Dir
	if c.Stdin != nil { // a nil *os.File in an interface is not nil
		cmd.Stdin = c.Stdin
	}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = stopLimit // grandchildren may hold the output open
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:    true, // the caller forwards interrupts typed at the terminal
		Pdeathsig:  orSignal(c.DeathSignal, syscall.SIGKILL),
		Credential: c.User,
	}
	if err := onLauncher(cmd.Start); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", c.Name, err), log.Close())
	}
	p := &Process{name: c.Name, log: c.Log, stop: orSignal(c.StopSignal, syscall.SIGTERM), cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = errors.Join(cmd.Wait(), log.Close())
		close(p.done)
	}()
	if c.Ready == "" {
		return p, nil
	}
	if err := p.awaitReady(ctx, out.found); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Process) awaitReady(ctx context.Context, ready <-chan struct{}) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, errSlow)
	defer cancel()
	select {
	case <-ready:
		return nil
	case <-p.done:
		return fmt.Errorf("start %s: it ended: %w\n%s", p.name, p.err, p.Tail())
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("start %s: not ready: %w\n%s", p.name, context.Cause(ctx), p.Tail()), p.Kill())
	}
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode is the exit code of a process that has ended, -1 for one that a signal ended.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Signal sends a signal to the process. It returns an error if the process has ended.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Stop asks the process to end and waits; after two minutes it kills the process and returns an error. It is not an error
// if the process has already ended.
func (p *Process) Stop() error {
	if err := p.Signal(p.stop); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopLimit):
		return errors.Join(fmt.Errorf("stop %s: still running %s after %s; killed\n%s", p.name, stopLimit, p.stop, p.Tail()), p.Kill())
	}
}

// Kill ends the process with SIGKILL and waits until it is gone.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// Tail returns the last 4 KiB of the process's output.
func (p *Process) Tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4096):])
}

func orSignal(s, otherwise syscall.Signal) syscall.Signal {
	if s == 0 {
		return otherwise
	}
	return s
}

// onLauncher runs f on the one thread that starts all processes. The kernel sends a death signal when the *thread* that
// started a process ends, and Go may end a thread at any time; this one lives as long as the program.
func onLauncher(f func() error) error {
	result := make(chan error)
	launcher() <- func() { result <- f() }
	return <-result
}

var launcher = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// output appends to a log and closes found when it has seen a text.
type output struct {
	log   *os.File
	ready []byte
	found chan struct{}
	line  []byte // the tail of the output, long enough for a text split between two writes; nil once found
	seen  bool
}

func (o *output) Write(b []byte) (int, error) {
	if !o.seen && len(o.ready) > 0 {
		o.line = append(o.line, b...)
		if bytes.Contains(o.line, o.ready) {
			o.seen, o.line = true, nil
			close(o.found)
		} else if keep := len(o.ready); len(o.line) > keep {
			o.line = append(o.line[:0], o.line[len(o.line)-keep:]...)
		}
	}
	return o.log.Write(b)
}
