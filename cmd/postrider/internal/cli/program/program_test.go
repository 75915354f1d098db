package program

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	signals := make(chan os.Signal)
	ended := make(chan int, 1)
	var errs strings.Builder // written to before the end is reported
	p := &Program{Stderr: &errs, Signals: signals, Exit: func(code int) { ended <- code }}
	ctx, cancel := context.WithCancel(t.Context())
	go p.watchSignals(cancel, make(chan struct{}))
	signals <- syscall.SIGTERM
	<-ctx.Done()
	signals <- syscall.SIGTERM
	if code := <-ended; code != exitAborted {
		t.Errorf("exit code %d", code)
	}
	if want := "terminated: ending in good order; once more ends at once"; !strings.Contains(errs.String(), want) {
		t.Errorf("%q is missing in: %s", want, errs.String())
	}
}
