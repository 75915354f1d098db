package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// execute runs the command in its own process group, forwards signals to the group, and leaves no process of it running.
// The second signal kills it.
func execute(ctx context.Context, command, env []string) (int, error) {
	runtime.LockOSThread() // permanently: the command's death signal comes when the thread that started it ends
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, ending...)
	defer signal.Stop(signals)
	if ctx.Err() != nil {
		return 1, errors.New("interrupted")
	}

	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	group := -cmd.Process.Pid
	defer func() { _ = syscall.Kill(group, syscall.SIGKILL) }() // usually none is left, which is an error
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for seen := 0; ; {
		select {
		case err := <-ended:
			return exitCode(cmd, err)
		case s := <-signals:
			if seen++; seen > 1 {
				s = syscall.SIGKILL
			}
			fmt.Fprintf(os.Stderr, "withservers: passing on: %s\n", s)
			_ = syscall.Kill(group, s.(syscall.Signal)) // it may have ended already
		}
	}
}

// exitCode is the command's exit code, or 128 plus the signal that ended it, as in shells.
func exitCode(cmd *exec.Cmd, err error) (int, error) {
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		return 1, err
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}
