package commands_test

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

// TestTailSurvivesOneBadRow: another program has written a row whose time has no JSON form, one whose payload is nested deeper than
// JSON is read, and one that is due after the end of the calendar.
func TestTailSurvivesOneBadRow(t *testing.T) {
	t.Parallel()
	clitest.OverStores(t, func(t *testing.T, url string) {
		clitest.PublishKeys(t, url, "order/1", "order/2", "order/3")
		year14645, nested := "400000000000000000", strings.Repeat("[", 9_999)+strings.Repeat("]", 9_999)
		bytes := "CAST('" + nested + "' AS BINARY)"
		switch {
		case strings.HasPrefix(url, "sqlite"):
			bytes = "CAST('" + nested + "' AS BLOB)"
		case strings.HasPrefix(url, "postgres"):
			year14645, bytes = "'14645-07-01'", "convert_to('"+nested+"', 'UTF8')"
		}
		clitest.Exec(t, url, "UPDATE postrider_log SET message_time = "+year14645+" WHERE seq = 1",
			"UPDATE postrider_log SET payload = "+bytes+" WHERE seq = 2", "UPDATE postrider_log SET available_at = "+year14645+" WHERE seq = 3")
		r := clitest.Invocation{Args: []string{"tail", "--store", url, "--from", "oldest", "--stop", "--json"}}.Run(t)
		clitest.Expect(t, r, program.ExitDone, "message with sequence 1 cannot be read whole: time is in the year 14645")
		other := clitest.NewOutbox(t)
		again := clitest.Invocation{Stdin: r.Out, Args: []string{"publish", "--store", other, "--file", "-"}}.Run(t)
		clitest.Expect(t, again, program.ExitDone, "published 3 messages")
		if got := clitest.Published(t, other); len(got) != 3 || string(got[1].Payload) != nested {
			t.Errorf("published %d messages, or another payload", len(got))
		}
	})
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
