package commands_test

import (
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

func TestMaintain(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	clitest.PublishKeys(t, url, "order/1", "order/2")
	maintain := []string{"maintain", "--keep-delivered", "1ns", "--store", url}
	clitest.Contains(t, clitest.OK(t, maintain...), "dropped 0 messages")
	clitest.Contains(t, clitest.OK(t, "maintain", "--without-relay", "--store", url), "dropped 0 messages")
	clitest.Contains(t, clitest.OK(t, append(maintain, "--without-relay", "--json")...), `"dropped":2`)
	clitest.Fails(t, program.ExitUsage, "--every must be 1s or longer", append(maintain, "--every", "1ms")...)
	clitest.Fails(t, program.ExitUsage, "without a relay, a time to keep messages is needed", "maintain", "--without-relay", "--keep-delivered", "0s", "--store", url)
}

func TestMaintainUsesTheSettings(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	clitest.PublishKeys(t, url, "order/1", "order/2")
	clitest.SettleAll(t, clitest.OpenOutbox(t, url), "to-nats", clitest.Delivered)
	file := func(keep string) string {
		return clitest.WriteFile(t, "store: {url: \""+url+"\", keep_delivered: 0s, keep_topics: [{topics: ["+keep+"], for: 1h}]}\n")
	}
	clitest.Contains(t, clitest.OK(t, "maintain", "--config", file("'*'")), "dropped 0 messages")
	clitest.Contains(t, clitest.OK(t, "maintain", "--config", file("other")), "dropped 2 messages")
}
