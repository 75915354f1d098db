package main

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
)

func TestWhatIsNotUnderstoodEndsWithUsage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ words, line string }{
		{`unknown command "sttus" for "postrider"`, "sttus"},
		{"unknown flag: --colour", "status --colour"},
		{`allowed: debug, info, warn, error`, "status --log-level loud"},
		{"postrider held needs a subcommand: dead, list, retry, show, skip", "held"},
		{`postrider dead has no subcommand "lst"`, "dead lst"},
		{"postrider status takes no arguments, got 1", "status now"},
		{"no store is given", "status"},
		{`"oracle" is not a kind of store; allowed: sqlite:FILE, postgres://user@host/database`, "status --store oracle://h/d"},
		{"--store shop is neither a URL nor the name of a store", "status --store shop"},
		{"no relay is described", "relay --store sqlite:x.db"},
		{`required flag(s) "because" not set`, "dead discard 1"},
		{`there is no command "nonsense" to explain`, "help nonsense"},
		{`there is no command "dead lst" to explain`, "help dead lst"},
		{"-4 is no flag, and no argument here is a negative number", "outbox partitions -4 --store sqlite:x.db"},
		{`--listen: "foo" is not host:port`, "relay --store sqlite:x.db --publisher nats://h?stream=S --listen foo"},
		{"--schema-version counts from 1, is -1", "publish --type t --schema-version -1"},
	} {
		fails(t, exitUsage, test.words, strings.Fields(test.line)...)
	}
}

func TestFaultsOfTheConfigurationAreAllReported(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "store: {urll: x}\nlog: {level: loud}\n")
	r := run(t, "status", "--config", file)
	expect(t, r, exitUsage, file+":1:9: store.urll: unknown key (did you mean url?)")
	expect(t, r, exitUsage, file+`:2:14: log.level: "loud" is not allowed`)
	fails(t, exitUsage, "read configuration", "status", "--config", file+".not-there")
}

func TestStoreComesFromFlagEnvironmentOrFile(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	file := writeFile(t, "stores:\n  - {name: shop, url: '"+url+"'}\n  - {name: other, url: 'sqlite:not-there.db'}\n")
	contains(t, ok(t, "status", "--config", file, "--store", "shop"), url)
	fails(t, exitUsage, "choose one with --store: shop, other", "status", "--config", file)
	r := invocation{environ: []string{"POSTRIDER_STORE_URL=" + url}, args: []string{"status"}}.run(t)
	contains(t, r.out, url)
	besides := []string{"POSTRIDER_STORE_URL=sqlite:elsewhere.db"}
	expect(t, invocation{environ: besides, args: []string{"status", "--config", file}}.run(t), exitUsage, "environment POSTRIDER_STORE_URL: store.url: the file has several")
	for _, chosen := range []string{"shop", url} {
		r = invocation{environ: besides, args: []string{"status", "--config", file, "--store", chosen}}.run(t)
		contains(t, r.out, url)
	}
	r = invocation{environ: []string{"POSTRIDER_CONFIG=" + file, "POSTRIDER_STORES_OTHER_URL=" + url}, args: []string{"status", "--store", "other"}}.run(t)
	contains(t, r.out, url)
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	signals := make(chan os.Signal)
	ended := make(chan int, 1)
	var errs syncBuffer
	p := &Program{Stderr: &errs, Signals: signals, Exit: func(code int) { ended <- code }}
	ctx, cancel := context.WithCancel(t.Context())
	go p.watchSignals(cancel, make(chan struct{}))
	signals <- syscall.SIGTERM
	<-ctx.Done()
	signals <- syscall.SIGTERM
	if code := <-ended; code != exitAborted {
		t.Errorf("exit code %d", code)
	}
	contains(t, errs.String(), "terminated: ending in good order; once more ends at once")
}

func TestEveryCommandHasHelpWithExamples(t *testing.T) {
	t.Parallel()
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Name() == "completion" || c.Name() == "help" {
			return
		}
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: Short is %q", c.CommandPath(), c.Short)
		}
		if !c.HasSubCommands() && !strings.Contains(c.Example, "postrider") {
			t.Errorf("%s has no example", c.CommandPath())
		}
		for line := range strings.Lines(c.Long) {
			if len([]rune(line)) > 125 {
				t.Errorf("%s: line of help is %d long: %s", c.CommandPath(), len(line), line)
			}
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit((&Program{}).rootCommand())
}

func TestHelpOfACommand(t *testing.T) {
	t.Parallel()
	contains(t, ok(t, "help", "dead", "list"), "List dead letters, oldest first")
	contains(t, ok(t, "help"), "postrider relay")
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		contains(t, ok(t, "completion", shell), "postrider")
	}
	contains(t, ok(t, "__complete", "status", "--log-level", ""), "debug", "error")
}

func TestVersion(t *testing.T) {
	t.Parallel()
	contains(t, ok(t, "version"), "postrider ", "go1.")
	contains(t, ok(t, "version", "--json"), `"version":`, `"platform":`)
}
