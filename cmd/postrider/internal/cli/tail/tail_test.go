package tail_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

func TestTailReadsWhatIsThere(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	clitest.PublishKeys(t, url, "order/1", "order/2", "order/1", "order/3")
	out := clitest.OK(t, "tail", "--store", url, "--from", "oldest", "--stop")
	clitest.Contains(t, out, "1  ", "orders order.placed  order/1", `{ "key": "order/3" }`)
	if n := strings.Count(out, "\n"); n != 4 {
		t.Errorf("%d lines:\n%s", n, out)
	}
	for _, test := range []struct {
		lines int
		args  string
	}{
		{2, "--from oldest --key order/1"}, {4, "--from oldest --topic ord*s"}, {0, "--from oldest --topic rd*"},
		{0, "--from oldest --type x"}, {0, "--from oldest --tenant x"}, {2, "--from 3"}, {0, "--from now"}, {4, "--from 1h"},
		{0, "--from 2999-01-01"}, {3, "--from oldest --limit 3"},
	} {
		out := clitest.OK(t, append([]string{"tail", "--store", url, "--stop"}, strings.Fields(test.args)...)...)
		if n := strings.Count(out, "\n"); n != test.lines {
			t.Errorf("tail %s: %d lines, want %d:\n%s", test.args, n, test.lines, out)
		}
	}
	clitest.Fails(t, program.ExitUsage, "--from yesterday is not a place", "tail", "--store", url, "--from", "yesterday")
	clitest.Fails(t, program.ExitUsage, "a sequence is not negative", "tail", "--store", url, "--from=-1")
	clitest.Contains(t, clitest.OK(t, "status", "--store", url), "No relay has run on this outbox yet") // tail leaves no trace
}

func TestTailFeedsPublish(t *testing.T) {
	t.Parallel()
	url, other := clitest.NewOutbox(t), clitest.NewOutbox(t)
	clitest.PublishKeys(t, url, "order/1", "order/2")
	lines := clitest.OK(t, "tail", "--store", url, "--from", "oldest", "--stop", "--json")
	r := clitest.Invocation{Stdin: lines, Args: []string{"publish", "--store", other, "--file", "-"}}.Run(t)
	clitest.Expect(t, r, program.ExitDone, "published 2 messages")
	if got := clitest.Published(t, other); len(got) != 2 || string(got[0].Payload) == "" {
		t.Errorf("published %+v", got)
	}
}

func TestTailFollows(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	clitest.PublishKeys(t, url, "order/1")
	r := clitest.Start(t, nil, "tail", "--store", url, "--from", "1")
	r.Out.Await(t.Context(), t, "order/1")
	clitest.PublishKeys(t, url, "order/2")
	r.Out.Await(t.Context(), t, "order/2")
	if code := r.End(t); code != program.ExitDone {
		t.Errorf("exit code %d: %s", code, r.Err.String())
	}
}
