// Package program is the environment of the commands: streams, flags, the store, questions and the exit code.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/config"
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

	// StoreFlag is the value of --store.
	StoreFlag  string
	configFile string
	logLevel   config.Level
	logFormat  config.Format
}

// Run runs a command tree with arguments (without the program's name), and returns the exit code.
func (p *Program) Run(ctx context.Context, root *cobra.Command, args []string) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	defer close(ended)
	go p.watchSignals(cancel, ended)

	p.noteBegin(root)
	root.SetArgs(args)
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	return p.report(root.ExecuteContext(ctx))
}

// noteBegin makes every command record that it begins: errors before that are usage errors.
func (p *Program) noteBegin(cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			p.begun = true
			return run(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		p.noteBegin(sub)
	}
}

// sameSignal is within which time a signal counts as the same one: timeout(1) sends it to the process and to its group.
const sameSignal = 300 * time.Millisecond

// watchSignals ends the context on the first signal and the process on the second.
func (p *Program) watchSignals(cancel context.CancelFunc, ended <-chan struct{}) {
	var first time.Time
	for {
		select {
		case <-ended:
			return
		case s := <-p.Signals:
			switch {
			case first.IsZero():
				first = time.Now()
				fmt.Fprintf(p.Stderr, "postrider: %s: stopping; signal again to stop at once\n", s)
				cancel()
			case time.Since(first) > sameSignal:
				p.Exit(exitAborted)
				return
			}
		}
	}
}

// report prints an error and returns the exit code.
func (p *Program) report(err error) int {
	if err == nil {
		return ExitDone
	}
	code := ExitFailed
	if e, ok := errors.AsType[*ExitError](err); ok {
		if code = e.Code; e.Err == nil {
			return code
		}
	} else if p.begun {
		_, badConfig := errors.AsType[*config.Error](err)
		_, badURL := errors.AsType[*backend.URLError](err)
		if badConfig || badURL {
			code = ExitUsage
		}
	} else {
		code = ExitUsage
	}
	for line := range strings.SplitSeq(p.completeAll(err.Error()), "\n") {
		fmt.Fprintf(p.Stderr, "postrider: %s\n", line)
	}
	if !p.begun {
		fmt.Fprintln(p.Stderr, "postrider: see postrider --help, or --help after a command")
	}
	return code
}

// Width reports whether a stream is a terminal, and its width in columns.
func (p *Program) Width(stream any) (width int, ok bool) {
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

// Env returns an environment variable, "" if it is not set.
func (p *Program) Env(name string) string {
	for _, pair := range p.Environ {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value
		}
	}
	return ""
}

// Operator names who decides, for the record of decisions: the user of the environment, or else of the operating system.
func (p *Program) Operator() string {
	for _, name := range []string{"SUDO_USER", "USER", "LOGNAME"} {
		if found := p.Env(name); found != "" {
			return found
		}
	}
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return fmt.Sprint("uid ", os.Getuid()) // a container may have no name for it
}
