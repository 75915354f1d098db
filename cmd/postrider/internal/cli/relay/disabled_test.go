package relay_test

import (
	"net/http"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

// TestRelaySwitchedOff: a variable switches a relay off. The process is healthy, asks no broker, and ends in good order; the outbox knows
// nothing of it.
func TestRelaySwitchedOff(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	file := clitest.WriteFile(t, "store: {url: \""+url+"\"}\nrelays: [{name: to-nats, publisher: \"nats://127.0.0.1:1?stream=S\"}]\n")
	r := clitest.Start(t, []string{"POSTRIDER_RELAYS_TO_NATS_DISABLED=true"}, "relay", "--config", file, "--listen", "127.0.0.1:0")
	awaitStatus(t, <-r.Address, http.StatusOK)
	r.Err.Await(t.Context(), t, "relay is switched off by its configuration")
	if code := r.End(t); code != program.ExitDone {
		t.Errorf("exit code %d:\n%s", code, r.Err.String())
	}
	clitest.Lacks(t, r.Err.String(), "connecting", "relay works")
	clitest.Contains(t, clitest.OK(t, "status", "--store", url), "No relay has run on this outbox yet")
}

// TestRelayOfAProgram: the file of a program with handlers serves operators' commands. The binary cannot run its relays.
func TestRelayOfAProgram(t *testing.T) {
	t.Parallel()
	file := clitest.WriteFile(t, "store: {url: \""+clitest.NewOutbox(t)+"\"}\nrelays: [{name: billing}]\nconsumers: [{name: view}]\n")
	clitest.OK(t, "status", "--config", file)
	clitest.Fails(t, program.ExitUsage, "relays[0].publisher: is missing", "relay", "--config", file)
	clitest.Fails(t, program.ExitUsage, "relays[0].publisher: is missing", "route", "list", "--config", file)
}
