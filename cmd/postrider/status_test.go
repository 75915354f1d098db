package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/postrider/postrider/relay"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	contains(t, ok(t, "status", "--store", url), "No relay has run on this outbox yet")
	contains(t, ok(t, "status", "--store", url, "--json"), `"relays": []`)

	publishKeys(t, url, "order/1", "order/2", "order/1")
	hold(t, url, "to-nats")
	publishKeys(t, url, "order/9")
	out := ok(t, "status", "--store", url, "--details")
	contains(t, out, "to-nats", "PARTITION", "nobody", "tester-1", "gone",
		"to-nats: held keys; see: postrider held list --relay to-nats", "to-nats: nobody delivers")

	var s relay.Status
	must(t, json.Unmarshal([]byte(ok(t, "status", "--store", url, "--json", "--relay", "to-nats")), &s))
	r := s.Relays[0]
	if r.Backlog.N != 1 || r.Parked.N != 3 || r.Held.N != 2 || r.Age <= 0 {
		t.Errorf("status is %+v", r)
	}
	fails(t, exitFailed, `there is no relay "to-moon" in this outbox; it has to-nats`, "status", "--store", url, "--relay", "to-moon")
}

func TestStatusShowsNotices(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	must(t, writeStatus(&b, "sqlite:x", relay.Status{Notices: []string{"the database was restored"}}, false))
	contains(t, b.String(), "Note: the database was restored")
}

func TestStatusLimits(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	publishKeys(t, url, "order/1", "order/2")
	bury(t, url, "to-nats")
	ok(t, "status", "--store", url, "--max-dead", "2", "--max-held", "0", "--max-age", "1ns")
	fails(t, exitNo, "relay to-nats: 2 dead letters, more than 1", "status", "--store", url, "--max-dead", "1")
	publishKeys(t, url, "order/3")
	fails(t, exitNo, "is above 1ns", "status", "--store", url, "--max-age", "1ns")
}

func TestStatusWatch(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	ctx, cancel := context.WithCancel(t.Context())
	var out, errs syncBuffer
	p := &Program{Stdout: &out, Stderr: &errs, Terminal: func(any) (int, bool) { return 80, true }}
	ended := make(chan int)
	go func() { ended <- p.Run(ctx, []string{"status", "--watch=10ms", "--store", url}) }()
	out.await(ctx, t, "\x1b[H\x1b[2J")
	publishKeys(t, url, "order/1")
	hold(t, url, "to-nats")
	out.await(ctx, t, "held keys; see")
	cancel()
	if code := <-ended; code != exitDone {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}
