package faults

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider/itest/process"
)

// showService shows what a service wrote, and what its goroutines wait for. It ends the service.
func showService(t *testing.T, p *process.Process, command process.Command) {
	t.Helper()
	before, err := os.ReadFile(command.Log)
	if err != nil {
		t.Errorf("the log of %s: %v", command.Name, err)
		return
	}
	repeated := countRepeated(string(before))
	t.Logf("%s wrote:\n%s", command.Name, repeated[max(0, len(repeated)-8<<10):])
	if p.Signal(syscall.SIGQUIT) != nil {
		return // it has ended
	}
	select {
	case <-p.Done():
	case <-time.After(time.Minute): // the caller kills it
	}
	if after, err := os.ReadFile(command.Log); err == nil {
		stacks := after[min(len(before), len(after)):]
		t.Logf("%s had these goroutines:\n%s", command.Name, stacks[:min(32<<10, len(stacks))])
	}
}

// countRepeated writes a line that comes several times in a row once, with their number: a service that cannot start says the same
// each time.
func countRepeated(text string) string {
	var out strings.Builder
	lines := strings.SplitAfter(text, "\n")
	for len(lines) > 0 {
		n := 1
		for n < len(lines) && lines[n] == lines[0] {
			n++
		}
		if n > 1 {
			fmt.Fprintf(&out, "%d times: ", n)
		}
		out.WriteString(lines[0])
		lines = lines[n:]
	}
	return out.String()
}

func TestCountRepeated(t *testing.T) {
	t.Parallel()
	if got, want := countRepeated("one\ntwo\ntwo\nthree\nthree"), "one\n2 times: two\nthree\nthree"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
