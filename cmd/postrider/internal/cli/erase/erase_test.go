package erase_test

import (
	"encoding/json"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/erasure"
)

func TestErase(t *testing.T) {
	t.Parallel()
	clitest.OverStores(t, func(t *testing.T, url string) {
		clitest.PublishKeys(t, url, "order/1", "order/2", "order/1")
		clitest.Hold(t, url, "to-nats")
		erase := []string{"erase", "messages", "--key", "order/1", "--because", "request 1217", "--by", "eva", "--store", url}
		clitest.Contains(t, clitest.OK(t, append(erase, "--dry-run")...), "2 messages of the log", "nothing was done")
		clitest.Contains(t, clitest.OK(t, append(erase, "--dry-run", "--json")...), `"logged": 2`)
		clitest.Fails(t, program.ExitUsage, "permanently?", erase...)
		clitest.Fails(t, program.ExitUsage, "name one of key, tenant and message ID; 0 are given", "erase", "messages", "--because", "x", "--store", url)
		clitest.Fails(t, program.ExitUsage, "because", "erase", "messages", "--key", "order/1", "--yes", "--store", url)
		clitest.Contains(t, clitest.Run(t, "erase", "list", "--store", url).Err, "no erasures")
		var e erasure.Erasure
		clitest.Must(t, json.Unmarshal([]byte(clitest.OK(t, append(erase, "--yes", "--json")...)), &e))
		if e.Logged != 2 || e.By != "eva" || e.Reason != "request 1217" || !e.Of(erasure.Plan{Key: "order/1"}) {
			t.Errorf("erased %+v", e)
		}
		clitest.Contains(t, clitest.OK(t, append(erase, "--yes")...), "found 0 messages of the log, 0 parked messages and 0 dead letters; nothing was done")
		clitest.Contains(t, clitest.OK(t, "erase", "list", "--key", "order/1", "--store", url), e.ID, "eva", "request 1217")
		clitest.Contains(t, clitest.OK(t, "erase", "list", "--json", "--store", url), e.Digest)
		clitest.Contains(t, clitest.Run(t, "erase", "list", "--key", "order/2", "--store", url).Err, "no erasures")
		clitest.Lacks(t, clitest.OK(t, "erase", "list", "--store", url)+clitest.OK(t, "tail", "--from", "oldest", "--stop", "--store", url), "order/1")
	})
}
