package commands_test

import (
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

func TestMySQLOutboxPartitions(t *testing.T) {
	t.Parallel()
	url := clitest.NewMySQLOutbox(t)
	clitest.PublishKeys(t, url, "order/1", "order/2", "order/1")
	clitest.Hold(t, url, "to-nats")
	clitest.PublishKeys(t, url, "order/3")
	clitest.Fails(t, program.ExitFailed, "a relay has undelivered messages: to-nats", "outbox", "partitions", "5", "--yes", "--store", url)
	clitest.SettleAll(t, clitest.OpenOutbox(t, url), "to-nats", clitest.Delivered)
	clitest.Contains(t, clitest.OK(t, "outbox", "partitions", "5", "--yes", "--store", url), "has 5 partitions now, before 8; start the relays")
	clitest.Contains(t, clitest.OK(t, "status", "--store", url), "5 partitions")
	clitest.Contains(t, clitest.OK(t, "held", "show", "order/1", "--store", url), "2 messages")
	clitest.Contains(t, clitest.OK(t, "outbox", "remove", "to-nats", "--because", "switched off", "--yes", "--discard", "--store", url), "3 messages discarded")
}
