package commands_test

import (
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

func TestOutboxPartitions(t *testing.T) {
	t.Parallel()
	for name, newStore := range map[string]func(t *testing.T) string{"SQLite": clitest.NewOutbox, "PostgreSQL": clitest.NewMigrated} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := newStore(t)
			clitest.PublishKeys(t, url, "order/1", "order/2", "order/1")
			clitest.Hold(t, url, "to-nats")
			clitest.PublishKeys(t, url, "order/3")
			clitest.Fails(t, program.ExitFailed, "a relay has undelivered messages: to-nats", "outbox", "partitions", "5", "--yes", "--store", url)
			clitest.SettleAll(t, clitest.OpenOutbox(t, url), "to-nats", clitest.Delivered)
			clitest.Fails(t, program.ExitUsage, "from 8 partitions to 5", "outbox", "partitions", "5", "--store", url)
			clitest.Contains(t, clitest.OK(t, "outbox", "partitions", "5", "--yes", "--store", url), "has 5 partitions now, before 8; start the relays")
			clitest.Contains(t, clitest.OK(t, "outbox", "partitions", "5", "--store", url), "has 5 partitions already")
			clitest.Contains(t, clitest.OK(t, "status", "--store", url), "5 partitions")
			clitest.Contains(t, clitest.OK(t, "held", "show", "order/1", "--store", url), "2 messages")
			for _, n := range []string{"0", "1025", "many"} {
				clitest.Fails(t, program.ExitUsage, "N must be a number from 1 to 1024", "outbox", "partitions", n, "--store", url)
			}
		})
	}
}

func TestOutboxPartitionsNeedsStoppedRelays(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	_, err := clitest.OpenOutbox(t, url).Heartbeat(t.Context(), "to-nats", clitest.Tester, time.Hour)
	clitest.Must(t, err)
	clitest.Fails(t, program.ExitFailed, "a relay process is alive: tester-1 of relay to-nats on host here", "outbox", "partitions", "5", "--yes", "--store", url)
	clitest.Fails(t, program.ExitFailed, "a relay process is alive", "outbox", "remove", "to-nats", "--because", "x", "--yes", "--store", url)
}

func TestOutboxRemove(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	clitest.PublishKeys(t, url, "order/1", "order/2")
	clitest.Hold(t, url, "to-nats")
	clitest.PublishKeys(t, url, "order/3")
	remove := []string{"outbox", "remove", "to-nats", "--because", "switched off", "--store", url}
	clitest.Fails(t, program.ExitUsage, "Remove relay to-nats (1 undelivered", remove...)
	clitest.Fails(t, program.ExitFailed, "postrider held list --relay to-nats", append(remove, "--yes")...)
	clitest.Fails(t, program.ExitFailed, `there is no relay "to-moon"`, "outbox", "remove", "to-moon", "--because", "x", "--yes", "--store", url)
	clitest.Contains(t, clitest.OK(t, append(remove, "--yes", "--discard")...), "relay to-nats is removed; 2 messages discarded")
	clitest.Contains(t, clitest.OK(t, "dead", "list", "--state", "discarded", "--store", url), "order/1", "order/2")
	clitest.Contains(t, clitest.OK(t, "status", "--store", url), "No relay has run on this outbox yet")
}

func TestOutboxRemoveEverything(t *testing.T) {
	t.Parallel()
	clitest.OverStores(t, func(t *testing.T, url string) {
		clitest.PublishKeys(t, url, "order/1", "order/2")
		clitest.Hold(t, url, "to-nats")
		remove := []string{"outbox", "remove", "to-nats", "--discard", "--everything", "--because", "switched off", "--store", url}
		clitest.Contains(t, clitest.OK(t, append(remove, "--dry-run")...), "permanently", "nothing was done")
		clitest.Contains(t, clitest.OK(t, append(remove, "--yes")...), "relay to-nats is removed; 2 messages discarded", "what to-nats has processed is removed")
		clitest.Contains(t, clitest.Run(t, "dead", "list", "--state", "any", "--store", url).Err, "no dead letters")
		clitest.Fails(t, program.ExitFailed, `there is no relay "to-nats"`, append(remove, "--yes")...)
	})
}

func TestOutboxRemoveEverythingLater(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	clitest.PublishKeys(t, url, "order/1", "order/2")
	clitest.Hold(t, url, "to-nats")
	remove := []string{"outbox", "remove", "to-nats", "--because", "switched off", "--yes", "--store", url}
	clitest.OK(t, append(remove, "--discard")...)
	clitest.Contains(t, clitest.OK(t, append(remove, "--everything")...), "what to-nats has processed is removed")
	clitest.Contains(t, clitest.Run(t, "dead", "list", "--state", "any", "--store", url).Err, "no dead letters")
}

func TestOutboxRemoveWhatWasImported(t *testing.T) {
	t.Parallel()
	exported, url := clitest.WithDead(t), clitest.NewOutbox(t)
	clitest.OK(t, "dead", "import", clitest.WriteFile(t, clitest.OK(t, "dead", "export", "--store", exported)), "--store", url)
	clitest.OK(t, "dead", "redrive", "1", "--store", url)
	remove := []string{"outbox", "remove", "to-nats", "--because", "imported by mistake", "--store", url}
	clitest.Fails(t, program.ExitUsage, "Remove relay to-nats, which has not run here, and discard what was imported for it", remove...)
	clitest.Fails(t, program.ExitFailed, "or give --discard; nothing has changed", append(remove, "--yes")...)
	clitest.Contains(t, clitest.OK(t, append(remove, "--yes", "--discard")...), "relay to-nats is removed; 3 messages discarded")
	clitest.Contains(t, clitest.OK(t, "dead", "list", "--state", "discarded", "--store", url), "order/1", "order/2", "order/3")
}
