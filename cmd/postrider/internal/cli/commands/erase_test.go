package commands_test

import (
	"context"
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

// TestResume: an erasure is interrupted. What an operator needs to finish it is in the list.
func TestResume(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	clitest.PublishKeys(t, url, "order/1", "order/2")
	o := clitest.OpenOutbox(t, url)
	plan := erasure.Plan{Key: "order/1", By: "eva", Reason: "request 1217"}
	interrupt := func() string {
		ctx, cancel := context.WithCancel(t.Context())
		e, err := erasure.New(o).Erase(ctx, plan, func(erasure.Erasure) { cancel() })
		if err == nil || e.Ended() {
			t.Fatalf("interrupted %+v, %v", e, err)
		}
		return e.ID
	}
	id := interrupt()
	clitest.Contains(t, clitest.OK(t, "erase", "list", "--store", url), id, "(not ended)")
	clitest.Contains(t, clitest.OK(t, "erase", "list", "--json", "--store", url), `"value":"order/1"`)
	clitest.Contains(t, clitest.OK(t, "erase", "resume", id, "--by", "ann", "--store", url), "erased 1 message of the log", id)
	clitest.Fails(t, program.ExitFailed, "the erasure has ended", "erase", "resume", id, "--by", "ann", "--store", url)
	list := clitest.OK(t, "erase", "list", "--json", "--store", url)
	clitest.Contains(t, list, `"resumed_by":"ann"`, `"ended_at"`)
	clitest.Lacks(t, list, "order/1")

	interrupt() // there is nothing to erase any more, but the record is to end
	clitest.OK(t, "erase", "messages", "--key", "order/1", "--because", "request 1217", "--by", "eva", "--yes", "--store", url)
	clitest.Lacks(t, clitest.OK(t, "erase", "list", "--store", url), "(not ended)")
}
