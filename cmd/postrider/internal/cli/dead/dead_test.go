package dead_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/dead"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/selection"
	"github.com/postrider/postrider/store"
)

func TestDeadList(t *testing.T) {
	t.Parallel()
	url := clitest.WithDead(t)
	out := clitest.OK(t, "dead", "list", "--store", url)
	clitest.Contains(t, out, "NUMBER", "order/1", "order/3", "attempts exhausted", "receiver says no")
	if out := clitest.OK(t, "dead", "list", "--store", url, "--key", "order/2"); strings.Contains(out, "order/1") || !strings.Contains(out, "order/2") {
		t.Errorf("filtered by key:\n%s", out)
	}
	for _, none := range [][]string{
		{"--topic", "x"}, {"--type", "x"}, {"--tenant", "x"}, {"--reason", "undecodable"}, {"--id", "x"},
		{"--from", "2999-01-01"}, {"--to", "1h"}, {"--state", "redriven"},
	} {
		r := clitest.Run(t, append([]string{"dead", "list", "--store", url}, none...)...)
		clitest.Expect(t, r, program.ExitDone, "no dead letters match", none...)
	}
	r := clitest.Run(t, "dead", "list", "--store", url, "--limit", "2")
	clitest.Expect(t, r, program.ExitDone, "there are more; go on with --after 2")
	clitest.Contains(t, clitest.OK(t, "dead", "list", "--store", url, "--after", "2"), "order/3")

	lines := strings.Split(strings.TrimSpace(clitest.OK(t, "dead", "list", "--store", url, "--json", "--state", "any")), "\n")
	var l store.DeadLetter
	clitest.Must(t, json.Unmarshal([]byte(lines[2]), &l))
	if len(lines) != 3 || l.Message.Key != "order/3" {
		t.Errorf("%d lines, the last is %+v", len(lines), l)
	}
	clitest.Fails(t, program.ExitUsage, "--from yesterday is not a time", "dead", "list", "--store", url, "--from", "yesterday")
}

// TestDeadKnowsItsNames: an unknown relay or reason is an error, not an empty result.
func TestDeadKnowsItsNames(t *testing.T) {
	t.Parallel()
	url := clitest.WithDead(t)
	noRelay, noReason := `there is no relay or consumer "to-nuts" in this store; it has to-nats`, `no message was dead-lettered for the reason "atempts exhausted" here; `
	for _, command := range []string{"dead list", "dead counts", "dead export", "dead redrive --yes", "dead discard --yes --because x", "redrive start --yes"} {
		args := append(strings.Fields(command), "--store", url)
		clitest.Fails(t, program.ExitFailed, noRelay, append(args, "--relay", "to-nuts")...)
		clitest.Fails(t, program.ExitFailed, noReason, append(args, "--reason", "atempts exhausted")...)
	}
	clitest.Contains(t, clitest.Run(t, "dead", "list", "--reason", "x", "--store", url).Err, "attempts exhausted")
	clitest.OK(t, "dead", "redrive", "--all", "--yes", "--store", url)
	clitest.Contains(t, clitest.OK(t, "dead", "redrive", "--relay", "to-nats", "--reason", "attempts exhausted", "--yes", "--store", url), "0 open dead letters match")
	clitest.Fails(t, program.ExitFailed, "it has none yet", "dead", "list", "--relay", "to-nats", "--store", clitest.NewOutbox(t))
}

func TestBecauseMustSaySomething(t *testing.T) {
	t.Parallel()
	url := clitest.WithDead(t)
	for _, command := range []string{"dead discard 1", "dead discard --all --yes", "held skip order/1", "held dead order/1", "outbox remove to-nats --yes", "dead edit 1 -H a=b"} {
		for _, because := range []string{"", " \t\n"} {
			clitest.Fails(t, program.ExitUsage, "it is empty, and stays on record: say why", append(strings.Fields(command), "--store", url, "--because", because)...)
		}
	}
}

func TestDecisionsRefuseEmptyFilters(t *testing.T) {
	t.Parallel()
	url := clitest.WithDead(t)
	for _, flag := range []string{"relay", "topic", "key", "reason", "from"} {
		clitest.Fails(t, program.ExitUsage, "--"+flag+" is empty; leave it away", "dead", "discard", "--type", "order.placed", "--"+flag, "", "--because", "x", "--yes", "--store", url)
		clitest.Fails(t, program.ExitUsage, "--"+flag+" is empty; leave it away", "dead", "redrive", "--type", "order.placed", "--"+flag, "", "--yes", "--store", url)
	}
	clitest.Contains(t, clitest.OK(t, "dead", "counts", "--json", "--store", url), `"dead_letters":3`)
}

func TestDeadShow(t *testing.T) {
	t.Parallel()
	url := clitest.WithDead(t)
	clitest.Contains(t, clitest.OK(t, "dead", "show", "2", "--store", url), "dead letter 2 of relay to-nats", "order/2", "attempts exhausted",
		`"key": "order/2"`, "postrider dead redrive 2")
	if out := clitest.OK(t, "dead", "show", "2", "--payload", "--store", url); out != `{"key":"order/2"}` {
		t.Errorf("payload %q", out)
	}
	clitest.Contains(t, clitest.OK(t, "dead", "show", "2", "--json", "--store", url), `"number": 2`)
	clitest.Fails(t, program.ExitFailed, "no such dead letter: 99", "dead", "show", "99", "--store", url)
	clitest.Fails(t, program.ExitUsage, `"x" is not the number of a dead letter`, "dead", "show", "x", "--store", url)
}

func TestDeadRedrive(t *testing.T) {
	t.Parallel()
	url := clitest.WithDead(t)
	clitest.Contains(t, clitest.OK(t, "dead", "show", "2", "--store", url), "redrives     0")
	clitest.Contains(t, clitest.OK(t, "dead", "redrive", "2", "--store", url), "redriven 1 dead letter")
	clitest.Contains(t, clitest.OK(t, "dead", "show", "2", "--store", url), "redriven", "redrives     1")
	clitest.Fails(t, program.ExitFailed, "2 was redriven by tester; nothing was done", "dead", "redrive", "1", "2", "--store", url)
	clitest.Contains(t, clitest.OK(t, "dead", "show", "2", "--store", url), "by tester")

	clitest.Contains(t, clitest.OK(t, "dead", "redrive", "--all", "--dry-run", "--store", url), "2 open dead letters match; nothing was done")
	clitest.Fails(t, program.ExitUsage, "Redrive 2 dead letters? Nobody can answer here", "dead", "redrive", "--all", "--store", url)
	r := clitest.Invocation{Stdin: "y\n", Terminal: true, Args: []string{"dead", "redrive", "--relay", "to-nats", "--store", url}}.Run(t)
	clitest.Expect(t, r, program.ExitDone, "Redrive 2 dead letters? [y/N]")
	clitest.Contains(t, r.Out, "redriven 2 dead letters in ")
	clitest.Contains(t, clitest.OK(t, "dead", "redrive", "--all", "--yes", "--store", url), "0 open dead letters match")
}

func TestDeadDiscard(t *testing.T) {
	t.Parallel()
	url := clitest.WithDead(t)
	clitest.Contains(t, clitest.OK(t, "dead", "discard", "--key", "order/1", "--because", "cancelled", "--by", "eva", "--yes", "--store", url), "discarded 1 dead letter")
	clitest.Contains(t, clitest.OK(t, "dead", "show", "1", "--store", url), "by eva cancelled")
	for words, args := range map[string]string{
		"choose dead letters by number": "dead discard --because x",
		"not both":                      "dead discard 1 --all --because x",
		"--batch must be 1 to 10000":    "dead discard --all --because x --batch 0",
	} {
		clitest.Fails(t, program.ExitUsage, words, append(strings.Fields(args), "--store", url)...)
	}
}

// beforeDiscard is a store in which something happens before the first dead letters are discarded.
type beforeDiscard struct {
	backend.Store
	happens func()
	once    sync.Once
}

func (s *beforeDiscard) Change(ctx context.Context, op store.Operation, f func(store.Writer) error) error {
	if op.Method == "DiscardDead" {
		s.once.Do(s.happens)
	}
	return s.Store.Change(ctx, op, f)
}

// TestDeadDiscardLeavesLaterDeadLettersAlone: after the question, another operator redrives one and another message is
// dead-lettered.
func TestDeadDiscardLeavesLaterDeadLettersAlone(t *testing.T) {
	t.Parallel()
	url := clitest.WithDead(t)
	o := clitest.OpenOutbox(t, url)
	o.Store = &beforeDiscard{Store: o.Store, happens: func() {
		clitest.OK(t, "dead", "redrive", "1", "--store", url)
		clitest.PublishKeys(t, url, "order/4")
		clitest.DeadLetterOne(t, url, "to-nats")
	}}
	var out, errs clitest.Buffer
	p := &program.Program{Stdout: &out, Stderr: &errs}
	clitest.Must(t, dead.Discard(t.Context(), p, o, &selection.Selection{Verb: "discard", Yes: true, By: "eva", Because: "x"}, store.DeadFilter{}, 2))
	clitest.Contains(t, out.String(), "discarded 2 dead letters")
	clitest.Contains(t, clitest.OK(t, "dead", "show", "4", "--store", url), "dead letter 4 of relay to-nats", "order/4", "open")
}
