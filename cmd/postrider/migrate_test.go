package main

import (
	"path/filepath"
	"testing"
)

func TestMigrate(t *testing.T) {
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "shop.db")
	fails(t, exitFailed, "create the outbox with: postrider migrate up --store "+url, "status", "--store", url)
	fails(t, exitFailed, "no such file", "migrate", "status", "--store", url)
	contains(t, ok(t, "migrate", "up", "--store", url+"?partitions=3"), "up 0001_outbox")
	contains(t, ok(t, "migrate", "up", "--store", url), "is up to date")
	contains(t, ok(t, "migrate", "status", "--store", url), "outbox", "applied")
	contains(t, ok(t, "status", "--store", url+"?partitions=5"), "3 partitions") // set when it was created

	fails(t, exitUsage, "Nobody can answer here", "migrate", "down", "--to", "0", "--store", url)
	no := invocation{stdin: "n\n", terminal: true, args: []string{"migrate", "down", "--to", "0", "--store", url}}.run(t)
	expect(t, no, exitFailed, "not confirmed; nothing was done")
	yes := invocation{stdin: "yes\n", terminal: true, args: no0(url)}.run(t)
	expect(t, yes, exitDone, "Remove the outbox in "+url+" with all its messages and dead letters? [y/N]")
	contains(t, yes.out, "down 0001_outbox")
	fails(t, exitNo, "is not up to date; run: postrider migrate up", "migrate", "status", "--json", "--store", url)
	fails(t, exitUsage, "below 1", "migrate", "down", "--to", "1", "--yes", "--store", url)
	fails(t, exitUsage, `required flag(s) "to" not set`, "migrate", "down", "--store", url)
}

func no0(url string) []string { return []string{"migrate", "down", "--to", "0", "--store", url} }

func TestMigratePrintNeedsNoDatabase(t *testing.T) {
	t.Parallel()
	contains(t, ok(t, "migrate", "print", "--store", "sqlite:not-there.db?prefix=mail_"), "CREATE TABLE", "mail_log")
}
