package redrive_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

func TestRelayDrivesRedrives(t *testing.T) {
	t.Parallel()
	url, broker := clitest.WithDead(t), clitest.StartNATS(t)
	clitest.OK(t, "redrive", "start", "--all", "--detach", "--yes", "--store", url)
	r := clitest.Start(t, nil, "relay", "--store", url, "--publisher", broker+"?stream=ORDERS")
	r.Err.Await(t.Context(), t, "relay works")
	if got := clitest.Arrivals(t, broker, "ORDERS", 3); !strings.Contains(strings.Join(got, ""), "order/3") {
		t.Errorf("arrived: %q", got)
	}
	if code := r.End(t); code != program.ExitDone {
		t.Errorf("exit code %d:\n%s", code, r.Err.String())
	}
	clitest.Contains(t, clitest.OK(t, "redrive", "show", "1", "--store", url), "redrive 1: finished", "delivered   3")
}
