package program

import (
	"context"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestSecondSignalEndsAtOnce: unless both are one: timeout(1) signals a process and its group.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { secondSignal(t) })
}

func secondSignal(t *testing.T) {
	signals := make(chan os.Signal)
	ended := make(chan int, 1)
	var errs strings.Builder // written to before the end is reported
	p := &Program{Stderr: &errs, Signals: signals, Exit: func(code int) { ended <- code }}
	ctx, cancel := context.WithCancel(t.Context())
	go p.watchSignals(cancel, make(chan struct{}))
	signals <- syscall.SIGTERM
	<-ctx.Done()
	signals <- syscall.SIGTERM
	synctest.Wait()
	if len(ended) > 0 {
		t.Error("a signal that is sent twice at once ends the process at once")
	}
	time.Sleep(time.Second)
	signals <- syscall.SIGTERM
	if code := <-ended; code != exitAborted {
		t.Errorf("exit code %d", code)
	}
	if want := "terminated: stopping; signal again to stop at once"; !strings.Contains(errs.String(), want) {
		t.Errorf("%q is missing in: %s", want, errs.String())
	}
}

// TestOperator: the record names the user who ran a command, never the program.
func TestOperator(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		environ []string
		want    string
	}{
		{[]string{"USER=root", "SUDO_USER=anna"}, "anna"},
		{[]string{"USER=anna"}, "anna"},
		{[]string{"LOGNAME=anna"}, "anna"},
	} {
		if got := (&Program{Environ: tt.environ}).Operator(); got != tt.want {
			t.Errorf("with %q: %q, want %q", tt.environ, got, tt.want)
		}
	}
	got := (&Program{}).Operator()
	if u, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil && got != u.Username || got == "" || got == "postrider" {
		t.Errorf("without an environment: %q", got)
	}
}
