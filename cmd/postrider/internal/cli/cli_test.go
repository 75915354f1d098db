package cli_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
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
		{"--store shop.db is neither a URL nor the name of a store in the configuration (none there); for the SQLite file of this name: --store sqlite:shop.db", "status --store shop.db"},
		{"no relay is described", "relay --store sqlite:x.db"},
		{`required flag(s) "because" not set`, "dead discard 1"},
		{`there is no command "nonsense" to explain`, "help nonsense"},
		{`there is no command "dead lst" to explain`, "help dead lst"},
		{"-4 is no flag, and no argument here is a negative number", "outbox partitions -4 --store sqlite:x.db"},
		{`--listen: "foo" is not host:port`, "relay --store sqlite:x.db --publisher nats://h?stream=S --listen foo"},
		{"--schema-version counts from 1, is -1", "publish --type t --schema-version -1"},
	} {
		clitest.Fails(t, program.ExitUsage, test.words, strings.Fields(test.line)...)
	}
}

func TestFaultsOfTheConfigurationAreAllReported(t *testing.T) {
	t.Parallel()
	file := clitest.WriteFile(t, "store: {urll: x}\nlog: {level: loud}\n")
	r := clitest.Run(t, "status", "--config", file)
	clitest.Expect(t, r, program.ExitUsage, file+":1:9: store.urll: unknown key (did you mean url?)")
	clitest.Expect(t, r, program.ExitUsage, file+`:2:14: log.level: "loud" is not allowed`)
	clitest.Fails(t, program.ExitUsage, "read configuration", "status", "--config", file+".not-there")
}

func TestStoreComesFromFlagEnvironmentOrFile(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	file := clitest.WriteFile(t, "stores:\n  - {name: shop, url: '"+url+"'}\n  - {name: other, url: 'sqlite:not-there.db'}\n")
	clitest.Contains(t, clitest.OK(t, "status", "--config", file, "--store", "shop"), url)
	clitest.Fails(t, program.ExitUsage, "choose one with --store: shop, other", "status", "--config", file)
	r := clitest.Invocation{Environ: []string{"POSTRIDER_STORE_URL=" + url}, Args: []string{"status"}}.Run(t)
	clitest.Contains(t, r.Out, url)
	besides := []string{"POSTRIDER_STORE_URL=sqlite:elsewhere.db"}
	clitest.Expect(t, clitest.Invocation{Environ: besides, Args: []string{"status", "--config", file}}.Run(t), program.ExitUsage, "environment POSTRIDER_STORE_URL: store.url: the file has several")
	for _, chosen := range []string{"shop", url} {
		r = clitest.Invocation{Environ: besides, Args: []string{"status", "--config", file, "--store", chosen}}.Run(t)
		clitest.Contains(t, r.Out, url)
	}
	r = clitest.Invocation{Environ: []string{"POSTRIDER_CONFIG=" + file, "POSTRIDER_STORES_OTHER_URL=" + url}, Args: []string{"status", "--store", "other"}}.Run(t)
	clitest.Contains(t, r.Out, url)
}

func TestHelpOfACommand(t *testing.T) {
	t.Parallel()
	clitest.Contains(t, clitest.OK(t, "help", "dead", "list"), "List dead letters, oldest first")
	clitest.Contains(t, clitest.OK(t, "help"), "postrider relay")
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		clitest.Contains(t, clitest.OK(t, "completion", shell), "postrider")
	}
	clitest.Contains(t, clitest.OK(t, "__complete", "status", "--log-level", ""), "debug", "error")
}

func TestVersion(t *testing.T) {
	t.Parallel()
	clitest.Contains(t, clitest.OK(t, "version"), "postrider ", "go1.")
	clitest.Contains(t, clitest.OK(t, "version", "--json"), `"version":`, `"platform":`)
}
