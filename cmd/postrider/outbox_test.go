package main

import (
	"testing"
	"time"

	"github.com/postrider/postrider/relay"
)

func TestOutboxPartitions(t *testing.T) {
	t.Parallel()
	for name, newStore := range map[string]func(t *testing.T) string{"SQLite": newOutbox, "PostgreSQL": newMigrated} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := newStore(t)
			publishKeys(t, url, "order/1", "order/2", "order/1")
			hold(t, url, "to-nats")
			publishKeys(t, url, "order/3")
			fails(t, exitFailed, "a relay has undelivered messages: to-nats", "outbox", "partitions", "5", "--yes", "--store", url)
			settleAll(t, openOutbox(t, url), "to-nats", delivered)
			fails(t, exitUsage, "from 8 partitions to 5", "outbox", "partitions", "5", "--store", url)
			contains(t, ok(t, "outbox", "partitions", "5", "--yes", "--store", url), "has 5 partitions now, before 8; start the relays")
			contains(t, ok(t, "outbox", "partitions", "5", "--store", url), "has 5 partitions already")
			contains(t, ok(t, "status", "--store", url), "5 partitions")
			contains(t, ok(t, "held", "show", "order/1", "--store", url), "2 messages")
			for _, n := range []string{"0", "1025", "many"} {
				fails(t, exitUsage, "N must be a number from 1 to 1024", "outbox", "partitions", n, "--store", url)
			}
		})
	}
}

// newMigrated returns the URL of a fresh outbox on the test server.
func newMigrated(t *testing.T) string {
	t.Helper()
	url := newPostgres(t)
	ok(t, "migrate", "up", "--store", url)
	return url
}

func TestOutboxPartitionsNeedsStoppedRelays(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	_, err := openOutbox(t, url).Heartbeat(t.Context(), "to-nats", tester, time.Hour)
	must(t, err)
	fails(t, exitFailed, "a relay process is alive: tester-1 of relay to-nats on host here", "outbox", "partitions", "5", "--yes", "--store", url)
	fails(t, exitFailed, "a relay process is alive", "outbox", "forget", "to-nats", "--because", "x", "--yes", "--store", url)
}

func TestOutboxForget(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	publishKeys(t, url, "order/1", "order/2")
	hold(t, url, "to-nats")
	publishKeys(t, url, "order/3")
	forget := []string{"outbox", "forget", "to-nats", "--because", "switched off", "--store", url}
	fails(t, exitUsage, "Forget relay to-nats (1 undelivered", forget...)
	fails(t, exitFailed, "postrider held list --relay to-nats", append(forget, "--yes")...)
	fails(t, exitFailed, `there is no relay "to-moon"`, "outbox", "forget", "to-moon", "--because", "x", "--yes", "--store", url)
	contains(t, ok(t, append(forget, "--yes", "--discard")...), "relay to-nats is forgotten; 2 messages discarded")
	contains(t, ok(t, "dead", "list", "--state", "discarded", "--store", url), "order/1", "order/2")
	contains(t, ok(t, "status", "--store", url), "No relay has run on this outbox yet")
}

func TestOutboxForgetWhatWasImported(t *testing.T) {
	t.Parallel()
	exported, url := withDead(t), newOutbox(t)
	ok(t, "dead", "import", writeFile(t, ok(t, "dead", "export", "--store", exported)), "--store", url)
	ok(t, "dead", "redrive", "1", "--store", url)
	forget := []string{"outbox", "forget", "to-nats", "--because", "imported by mistake", "--store", url}
	fails(t, exitUsage, "Forget relay to-nats, which has not run here, and discard what was imported for it", forget...)
	fails(t, exitFailed, "or give --discard; nothing has changed", append(forget, "--yes")...)
	contains(t, ok(t, append(forget, "--yes", "--discard")...), "relay to-nats is forgotten; 3 messages discarded")
	contains(t, ok(t, "dead", "list", "--state", "discarded", "--store", url), "order/1", "order/2", "order/3")
}

func TestStatusSaysSinceWhenNobodyDelivers(t *testing.T) {
	t.Parallel()
	gone := relay.RelayStatus{Owners: []relay.OwnerStatus{{SeenAgo: 50 * time.Hour}, {SeenAgo: 3 * time.Hour}}}
	if got := alive(gone); got != "none for 3h0m" {
		t.Errorf("processes: %q", got)
	}
	if got := alive(relay.RelayStatus{}); got != "none" {
		t.Errorf("processes of a relay that has had none: %q", got)
	}
}
