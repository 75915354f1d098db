package main

import (
	"strings"
	"testing"
)

func TestTailReadsWhatIsThere(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	publishKeys(t, url, "order/1", "order/2", "order/1", "order/3")
	out := ok(t, "tail", "--store", url, "--from", "oldest", "--stop")
	contains(t, out, "1  ", "orders order.placed  order/1", `{ "key": "order/3" }`)
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
		out := ok(t, append([]string{"tail", "--store", url, "--stop"}, strings.Fields(test.args)...)...)
		if n := strings.Count(out, "\n"); n != test.lines {
			t.Errorf("tail %s: %d lines, want %d:\n%s", test.args, n, test.lines, out)
		}
	}
	fails(t, exitUsage, "--from yesterday is not a place", "tail", "--store", url, "--from", "yesterday")
	fails(t, exitUsage, "a sequence is not negative", "tail", "--store", url, "--from=-1")
	contains(t, ok(t, "status", "--store", url), "No relay has run on this outbox yet") // tail leaves no trace
}

func TestTailFeedsPublish(t *testing.T) {
	t.Parallel()
	url, other := newOutbox(t), newOutbox(t)
	publishKeys(t, url, "order/1", "order/2")
	lines := ok(t, "tail", "--store", url, "--from", "oldest", "--stop", "--json")
	r := invocation{stdin: lines, args: []string{"publish", "--store", other, "--file", "-"}}.run(t)
	expect(t, r, exitDone, "published 2 messages")
	if got := published(t, other); len(got) != 2 || string(got[0].Payload) == "" {
		t.Errorf("published %+v", got)
	}
}

func TestTailFollows(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	publishKeys(t, url, "order/1")
	r := start(t, nil, "tail", "--store", url, "--from", "1")
	r.out.await(t.Context(), t, "order/1")
	publishKeys(t, url, "order/2")
	r.out.await(t.Context(), t, "order/2")
	if code := r.end(t); code != exitDone {
		t.Errorf("exit code %d: %s", code, r.err.String())
	}
}
