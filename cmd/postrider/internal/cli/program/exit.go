package program

import "fmt"

// The exit codes. docs/cli.md and the help of the root command explain them.
const (
	ExitDone    = 0
	ExitFailed  = 1
	ExitUsage   = 2
	ExitNo      = 3
	ExitPartly  = 4
	exitAborted = 130
)

// ExitError is an error with its own exit code; other errors end with ExitFailed. A nil Err prints nothing: the command
// has already reported.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// Exit returns an error with an exit code.
func Exit(code int, err error) error { return &ExitError{Code: code, Err: err} }

// Usagef returns a usage error: nothing was done.
func Usagef(format string, args ...any) error {
	return Exit(ExitUsage, fmt.Errorf(format, args...))
}
