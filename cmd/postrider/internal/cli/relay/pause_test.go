package relay_test

import (
	"encoding/json"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/store"
)

// TestPauseOnTheCommandLine: a relay with undelivered messages is paused and resumed, and status and explain say so.
func TestPauseOnTheCommandLine(t *testing.T) {
	t.Parallel()
	clitest.OverStores(t, func(t *testing.T, url string) {
		clitest.PublishKeys(t, url, "order/1")
		clitest.SettleAll(t, clitest.OpenOutbox(t, url), "to-nats", clitest.Delivered)
		id := clitest.PublishID(t, url, "order/2")
		clitest.Fails(t, program.ExitUsage, "because", "relay", "pause", "to-nats", "--store", url)
		clitest.Fails(t, program.ExitUsage, "--for must be positive", "relay", "pause", "to-nats", "--for", "0s", "--because", "x", "--store", url)
		clitest.Fails(t, program.ExitFailed, "no such relay", "relay", "pause", "to-nat", "--because", "x", "--store", url)
		clitest.Fails(t, program.ExitNo, "age", "status", "--max-age", "1ns", "--store", url)
		var p store.Pause
		clitest.Must(t, json.Unmarshal([]byte(clitest.OK(t, "relay", "pause", "to-nats", "--for", "1h", "--because", "broker moves", "--by", "eva", "--json", "--store", url)), &p))
		if p.Relay != "to-nats" || p.By != "eva" || p.Until.IsZero() {
			t.Errorf("%+v", p)
		}
		clitest.Fails(t, program.ExitFailed, "already paused, by eva: broker moves", "relay", "pause", "to-nats", "--because", "x", "--store", url)
		clitest.Contains(t, clitest.OK(t, "status", "--max-age", "1ns", "--max-parked", "1ns", "--store", url), "to-nats: paused by eva since ", "broker moves",
			"postrider relay resume to-nats")
		clitest.Contains(t, clitest.OK(t, "status", "--json", "--store", url), `"by": "eva"`)
		const next, resume = "nothing until to-nats is resumed, or until ", "postrider relay resume to-nats"
		clitest.Contains(t, clitest.OK(t, "explain", "--relay", "to-nats", "--store", url), "relay to-nats: paused", next, "eva paused it: broker moves", resume)
		clitest.Contains(t, clitest.OK(t, "explain", id, "--store", url), "waits in the log", next, resume)
		clitest.Contains(t, clitest.OK(t, "explain", "--key", "order/2", "--store", url), "not held", next)
		clitest.Contains(t, clitest.OK(t, "relay", "resume", "to-nats", "--store", url), "to-nats is resumed; it was paused by eva at ", "broker moves")
		clitest.Fails(t, program.ExitFailed, "not paused", "relay", "resume", "to-nats", "--store", url)
		clitest.Lacks(t, clitest.OK(t, "status", "--store", url), "paused")
		clitest.Contains(t, clitest.OK(t, "relay", "pause", "to-nats", "--because", "x", "--store", url), "to-nats is paused; resume it with: postrider relay resume to-nats")
	})
}
