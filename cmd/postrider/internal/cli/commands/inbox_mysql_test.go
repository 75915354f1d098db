package commands_test

import (
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
)

func TestMySQLInboxStatus(t *testing.T) {
	t.Parallel()
	url := clitest.NewMySQLOutbox(t)
	clitest.Contains(t, clitest.Run(t, "inbox", "status", "--store", url).Err, "no consumer has run on this store")
	clitest.Consume(t, url)
	clitest.Contains(t, clitest.OK(t, "inbox", "status", "--store", url), "CONSUMER", "view", "1 IDs", "ledger", "1 watermark", "orders/0", "4,711")
	clitest.Contains(t, clitest.OK(t, "dead", "list", "--side", "consumer", "--store", url), "view", "refused")
}
