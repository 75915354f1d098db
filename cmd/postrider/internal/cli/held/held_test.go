package held_test

import (
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

func TestHeldListAndShow(t *testing.T) {
	t.Parallel()
	url := clitest.WithHeld(t)
	clitest.Contains(t, clitest.OK(t, "held", "list", "--store", url), "order/1", "order/2", "receiver says no", "retry")
	clitest.Contains(t, clitest.OK(t, "held", "list", "--json", "--store", url), `"key":"order/1"`)
	clitest.Contains(t, clitest.OK(t, "held", "show", "order/1", "--store", url), "key order/1 of relay to-nats", "3 messages", "order.placed",
		"postrider held retry order/1")
	clitest.Contains(t, clitest.OK(t, "held", "show", "order/1", "--json", "--limit", "2", "--store", url), `"messages": [`, `"parked": 3`)
	clitest.Fails(t, program.ExitFailed, "key is not held: order/7 (any relay)", "held", "show", "order/7", "--store", url)
	clitest.Fails(t, program.ExitFailed, "key is not held: order/1 (other)", "held", "retry", "order/1", "--relay", "other", "--store", url)
	clitest.Fails(t, program.ExitFailed, `there is no relay or consumer "other" in this store; it has to-nats`, "held", "list", "--relay", "other", "--store", url)
	clitest.SettleAll(t, clitest.OpenOutbox(t, url), "to-audit", clitest.Delivered)
	r := clitest.Run(t, "held", "list", "--relay", "to-audit", "--store", url)
	clitest.Expect(t, r, program.ExitDone, "no key is held")
}

func TestHeldDecisions(t *testing.T) {
	t.Parallel()
	url := clitest.WithHeld(t)
	clitest.Contains(t, clitest.OK(t, "held", "retry", "order/2", "--store", url), "key order/2 of relay to-nats is due at once")
	clitest.Contains(t, clitest.OK(t, "held", "skip", "order/1", "--because", "broken", "--store", url), "skipped the blocking message of key order/1")
	clitest.Contains(t, clitest.OK(t, "dead", "list", "--state", "discarded", "--store", url), "order/1")
	clitest.Contains(t, clitest.OK(t, "held", "dead", "order/1", "--because", "later", "--store", url), "sent 1 message of key order/1")
	clitest.Contains(t, clitest.OK(t, "dead", "list", "--store", url), "order/1")
}

func TestHeldDeadAllAsks(t *testing.T) {
	t.Parallel()
	url := clitest.WithHeld(t)
	clitest.Fails(t, program.ExitUsage, "Send every parked message of key order/1 to the dead letters?", "held", "dead", "order/1", "--all", "--because", "x", "--store", url)
	clitest.Contains(t, clitest.OK(t, "held", "dead", "order/1", "--all", "--yes", "--because", "x", "--store", url), "sent 3 messages of key order/1")
}

func TestKeyHeldByTwoRelaysNeedsAChoice(t *testing.T) {
	t.Parallel()
	url := clitest.WithHeld(t)
	clitest.Hold(t, url, "to-audit")
	clitest.Fails(t, program.ExitUsage, "choose one with --relay", "held", "retry", "order/1", "--store", url)
	clitest.OK(t, "held", "retry", "order/1", "--relay", "to-audit", "--store", url)
}
