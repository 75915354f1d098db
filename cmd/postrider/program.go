package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/config"
)

// Program is one run of the binary. All its access to the outside is through fields, so that tests can run it in their
// own process.
type Program struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Environ        []string
	// Signals delivers interrupts: the first ends the command gracefully, the second calls Exit at once.
	Signals <-chan os.Signal
	Exit    func(code int)
	// Listening, if not nil, receives the address of the HTTP server.
	Listening func(net.Addr)
	// Terminal reports whether a stream is a terminal and how many columns it has. Default: asks the system.
	Terminal func(stream any) (width int, ok bool)

	// begun says that flags and arguments are valid and the command itself has begun.
	begun bool

	configFile, storeFlag string
	logLevel              config.Level
	logFormat             config.Format
}

// The exit codes. docs/cli.md and the help of the root command explain them.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2
	exitNo      = 3
	exitPartly  = 4
	exitAborted = 130
)

// exitError is an error with its own exit code; other errors end with exitFailed. A nil err prints nothing: the command
// has already reported.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usagef returns a usage error: nothing was done.
func usagef(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// Run runs the program with its arguments (without the program's name) and returns its exit code.
func (p *Program) Run(ctx context.Context, args []string) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	defer close(ended)
	go p.watchSignals(cancel, ended)

	root := p.rootCommand()
	root.SetArgs(args)
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	return p.report(root.ExecuteContext(ctx))
}

// watchSignals ends the context on the first signal and the process on the second.
func (p *Program) watchSignals(cancel context.CancelFunc, ended <-chan struct{}) {
	for n := 1; ; n++ {
		select {
		case <-ended:
			return
		case s := <-p.Signals:
			if n > 1 {
				p.Exit(exitAborted)
				return
			}
			fmt.Fprintf(p.Stderr, "postrider: %s: ending in good order; once more ends at once\n", s)
			cancel()
		}
	}
}

// report prints an error and returns the exit code.
func (p *Program) report(err error) int {
	if err == nil {
		return exitDone
	}
	code := exitFailed
	if e, ok := errors.AsType[*exitError](err); ok {
		if code = e.code; e.err == nil {
			return code
		}
	} else if p.begun {
		_, badConfig := errors.AsType[*config.Error](err)
		_, badURL := errors.AsType[*backend.URLError](err)
		if badConfig || badURL {
			code = exitUsage
		}
	} else {
		code = exitUsage
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(p.Stderr, "postrider: %s\n", line)
	}
	if !p.begun {
		fmt.Fprintln(p.Stderr, "postrider: see postrider --help, or --help after a command")
	}
	return code
}

// terminal reports whether a stream is a terminal, and its width in columns.
func (p *Program) terminal(stream any) (width int, ok bool) {
	if p.Terminal != nil {
		return p.Terminal(stream)
	}
	f, isFile := stream.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	return width, err == nil && width > 0
}

// env returns an environment variable, "" if it is not set.
func (p *Program) env(name string) string {
	for _, pair := range p.Environ {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value
		}
	}
	return ""
}

// operator names who decides, for the record of decisions.
func (p *Program) operator() string {
	for _, name := range []string{"SUDO_USER", "USER", "LOGNAME"} {
		if user := p.env(name); user != "" {
			return user
		}
	}
	return "postrider"
}

// exactArgs is cobra.ExactArgs with a message that names the missing arguments.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usagef("%s takes %s, got %d", cmd.CommandPath(), cmp.Or(strings.Join(names, " and "), "no arguments"), len(args))
		}
		return nil
	}
}
