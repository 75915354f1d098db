package main

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/deadletter"
)

// withDead returns an outbox with dead letters 1, 2, 3 for the keys order/1, order/2, order/3.
func withDead(t *testing.T) string {
	t.Helper()
	url := newOutbox(t)
	publishKeys(t, url, "order/1")
	deadLetterOne(t, url, "to-nats")
	publishKeys(t, url, "order/2")
	deadLetterOne(t, url, "to-nats")
	publishKeys(t, url, "order/3")
	deadLetterOne(t, url, "to-nats")
	return url
}

func TestDeadList(t *testing.T) {
	t.Parallel()
	url := withDead(t)
	out := ok(t, "dead", "list", "--store", url)
	contains(t, out, "NUMBER", "order/1", "order/3", "attempts exhausted", "receiver says no")
	if out := ok(t, "dead", "list", "--store", url, "--key", "order/2"); strings.Contains(out, "order/1") || !strings.Contains(out, "order/2") {
		t.Errorf("filtered by key:\n%s", out)
	}
	for _, none := range [][]string{
		{"--topic", "x"}, {"--type", "x"}, {"--tenant", "x"}, {"--reason", "undecodable"}, {"--id", "x"},
		{"--from", "2999-01-01"}, {"--to", "1h"}, {"--state", "redriven"},
	} {
		r := run(t, append([]string{"dead", "list", "--store", url}, none...)...)
		expect(t, r, exitDone, "no dead letters match", none...)
	}
	r := run(t, "dead", "list", "--store", url, "--limit", "2")
	expect(t, r, exitDone, "there are more; go on with --after 2")
	contains(t, ok(t, "dead", "list", "--store", url, "--after", "2"), "order/3")

	lines := strings.Split(strings.TrimSpace(ok(t, "dead", "list", "--store", url, "--json", "--state", "any")), "\n")
	var l deadletter.Record
	must(t, json.Unmarshal([]byte(lines[2]), &l))
	if len(lines) != 3 || l.Message.Key != "order/3" {
		t.Errorf("%d lines, the last is %+v", len(lines), l)
	}
	fails(t, exitUsage, "--from yesterday is not a time", "dead", "list", "--store", url, "--from", "yesterday")
}

// TestDeadKnowsItsNames: an unknown relay or reason is an error, not an empty result.
func TestDeadKnowsItsNames(t *testing.T) {
	t.Parallel()
	url := withDead(t)
	noRelay, noReason := `there is no relay or consumer "to-nuts" in this store; it has to-nats`, `no message has died for the reason "atempts exhausted" here; `
	for _, command := range []string{"dead list", "dead counts", "dead export", "dead redrive --yes", "dead discard --yes --because x", "redrive start --yes"} {
		args := append(strings.Fields(command), "--store", url)
		fails(t, exitFailed, noRelay, append(args, "--relay", "to-nuts")...)
		fails(t, exitFailed, noReason, append(args, "--reason", "atempts exhausted")...)
	}
	contains(t, run(t, "dead", "list", "--reason", "x", "--store", url).err, "attempts exhausted")
	ok(t, "dead", "redrive", "--all", "--yes", "--store", url)
	contains(t, ok(t, "dead", "redrive", "--relay", "to-nats", "--reason", "attempts exhausted", "--yes", "--store", url), "0 open dead letters match")
	fails(t, exitFailed, "it has none yet", "dead", "list", "--relay", "to-nats", "--store", newOutbox(t))
}

func TestBecauseMustSaySomething(t *testing.T) {
	t.Parallel()
	url := withDead(t)
	for _, command := range []string{"dead discard 1", "dead discard --all --yes", "held skip order/1", "held dead order/1", "outbox forget to-nats --yes", "dead edit 1 -H a=b"} {
		for _, because := range []string{"", " \t\n"} {
			fails(t, exitUsage, "it is empty, and stays on record: say why", append(strings.Fields(command), "--store", url, "--because", because)...)
		}
	}
}

func TestDecisionsRefuseEmptyFilters(t *testing.T) {
	t.Parallel()
	url := withDead(t)
	for _, flag := range []string{"relay", "topic", "key", "reason", "from"} {
		fails(t, exitUsage, "--"+flag+" is empty; leave it away", "dead", "discard", "--type", "order.placed", "--"+flag, "", "--because", "x", "--yes", "--store", url)
		fails(t, exitUsage, "--"+flag+" is empty; leave it away", "dead", "redrive", "--type", "order.placed", "--"+flag, "", "--yes", "--store", url)
	}
	contains(t, ok(t, "dead", "counts", "--json", "--store", url), `"letters":3`)
}

func TestDeadShow(t *testing.T) {
	t.Parallel()
	url := withDead(t)
	contains(t, ok(t, "dead", "show", "2", "--store", url), "dead letter 2 of relay to-nats", "order/2", "attempts exhausted",
		`"key": "order/2"`, "postrider dead redrive 2")
	if out := ok(t, "dead", "show", "2", "--payload", "--store", url); out != `{"key":"order/2"}` {
		t.Errorf("payload %q", out)
	}
	contains(t, ok(t, "dead", "show", "2", "--json", "--store", url), `"number": 2`)
	fails(t, exitFailed, "no such dead letter: 99", "dead", "show", "99", "--store", url)
	fails(t, exitUsage, `"x" is not the number of a dead letter`, "dead", "show", "x", "--store", url)
}

func TestDeadRedrive(t *testing.T) {
	t.Parallel()
	url := withDead(t)
	contains(t, ok(t, "dead", "redrive", "2", "--store", url), "redriven 1 dead letter")
	fails(t, exitFailed, "2 was redriven by tester; nothing was done", "dead", "redrive", "1", "2", "--store", url)
	contains(t, ok(t, "dead", "show", "2", "--store", url), "by tester")

	contains(t, ok(t, "dead", "redrive", "--all", "--dry-run", "--store", url), "2 open dead letters match; nothing was done")
	fails(t, exitUsage, "Redrive 2 dead letters? Nobody can answer here", "dead", "redrive", "--all", "--store", url)
	r := invocation{stdin: "y\n", terminal: true, args: []string{"dead", "redrive", "--relay", "to-nats", "--store", url}}.run(t)
	expect(t, r, exitDone, "Redrive 2 dead letters? [y/N]")
	contains(t, r.out, "redriven 2 dead letters in ")
	contains(t, ok(t, "dead", "redrive", "--all", "--yes", "--store", url), "0 open dead letters match")
}

func TestDeadDiscard(t *testing.T) {
	t.Parallel()
	url := withDead(t)
	contains(t, ok(t, "dead", "discard", "--key", "order/1", "--because", "cancelled", "--by", "eva", "--yes", "--store", url), "discarded 1 dead letter")
	contains(t, ok(t, "dead", "show", "1", "--store", url), "by eva cancelled")
	for words, args := range map[string]string{
		"choose dead letters by number": "dead discard --because x",
		"not both":                      "dead discard 1 --all --because x",
		"--batch must be 1 to 10000":    "dead discard --all --because x --batch 0",
	} {
		fails(t, exitUsage, words, append(strings.Fields(args), "--store", url)...)
	}
}

// beforeDiscard is a store in which something happens before the first dead letters are discarded.
type beforeDiscard struct {
	backend.Store
	happens func()
	once    sync.Once
}

func (s *beforeDiscard) DiscardDead(ctx context.Context, f deadletter.Filter, by, reason string, limit int) (int, error) {
	s.once.Do(s.happens)
	return s.Store.DiscardDead(ctx, f, by, reason, limit)
}

// TestDeadDiscardLeavesLaterLettersAlone: after the question, another operator redrives one and another message is
// dead-lettered.
func TestDeadDiscardLeavesLaterLettersAlone(t *testing.T) {
	t.Parallel()
	url := withDead(t)
	o := openOutbox(t, url)
	o.Store = &beforeDiscard{Store: o.Store, happens: func() {
		ok(t, "dead", "redrive", "1", "--store", url)
		publishKeys(t, url, "order/4")
		deadLetterOne(t, url, "to-nats")
	}}
	var out, errs syncBuffer
	p := &Program{Stdout: &out, Stderr: &errs}
	must(t, p.discard(t.Context(), o, &selection{verb: "discard", yes: true, by: "eva"}, deadletter.Filter{}, "x", 2))
	contains(t, out.String(), "discarded 2 dead letters")
	contains(t, ok(t, "dead", "show", "4", "--store", url), "dead letter 4 of relay to-nats", "order/4", "open")
}
