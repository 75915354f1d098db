package publish_test

import (
	"bytes"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

// closed is a pipe that nobody reads any more.
type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, fmt.Errorf("write |1: %w", syscall.EPIPE) }

// TestPublishFileThatNobodyReads: everything is published, although the reader of the IDs has gone.
func TestPublishFileThatNobodyReads(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	var errors bytes.Buffer
	p := &program.Program{Stdin: strings.NewReader(strings.Join(lines(10), "\n")), Stdout: closed{}, Stderr: &errors}
	if code := cli.Run(t.Context(), p, []string{"publish", "--file", "-", "--batch", "3", "--store", url}); code != program.ExitDone {
		t.Errorf("exit code %d: %s", code, errors.String())
	}
	if got := errors.String(); strings.Count(got, "nobody reads the IDs any more") != 1 || !strings.Contains(got, "published 10 messages") {
		t.Error(got)
	}
	if got := clitest.Published(t, url); len(got) != 10 {
		t.Errorf("%d messages are published", len(got))
	}
}
