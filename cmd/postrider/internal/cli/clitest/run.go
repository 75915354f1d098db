// Package clitest runs the program in tests, next to stores and brokers.
package clitest

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

// Result is the result of running the program.
type Result struct {
	Code     int
	Out, Err string
}

// Invocation is a run of the program in the test's process.
type Invocation struct {
	Stdin    string
	Environ  []string
	Terminal bool // all streams are terminals of 100 columns
	Args     []string
}

// Run runs the program.
func (i Invocation) Run(t *testing.T) Result {
	t.Helper()
	var out, errs Buffer
	p := &program.Program{
		Stdin: strings.NewReader(i.Stdin), Stdout: &out, Stderr: &errs, Environ: append(i.Environ, "USER=tester"),
		Exit:     func(int) { t.Error("ended at once") },
		Terminal: func(any) (int, bool) { return 100, i.Terminal },
	}
	return Result{cli.Run(t.Context(), p, i.Args), out.String(), errs.String()}
}

// Run runs the program with only arguments.
func Run(t *testing.T, args ...string) Result {
	t.Helper()
	return Invocation{Args: args}.Run(t)
}

// OK runs the program, which must succeed, and returns its output.
func OK(t *testing.T, args ...string) string {
	t.Helper()
	r := Run(t, args...)
	if r.Code != program.ExitDone {
		t.Fatalf("postrider %s: exit code %d\n%s%s", strings.Join(args, " "), r.Code, r.Out, r.Err)
	}
	return r.Out
}

// Fails runs the program, which must exit with a code and print certain words to standard error.
func Fails(t *testing.T, code int, words string, args ...string) {
	t.Helper()
	Expect(t, Run(t, args...), code, words, args...)
}

// Expect checks the exit code of a run and that certain words are on standard error.
func Expect(t *testing.T, r Result, code int, words string, args ...string) {
	t.Helper()
	if r.Code != code || !strings.Contains(r.Err, words) {
		t.Errorf("postrider %s: exit code %d, want %d; standard error:\n%s\nwant %q in it", strings.Join(args, " "), r.Code, code, r.Err, words)
	}
}
