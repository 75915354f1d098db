package commands_test

import (
	"encoding/json"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/store"
)

func TestMySQLHeldAndDead(t *testing.T) {
	t.Parallel()
	url := clitest.NewMySQLOutbox(t)
	head := clitest.PublishID(t, url, "order/1")
	clitest.PublishKeys(t, url, "order/1", "order/2")
	clitest.Hold(t, url, "to-nats")
	clitest.Contains(t, clitest.OK(t, "held", "list", "--store", url), "order/1", "order/2", "receiver says no")
	clitest.Contains(t, clitest.OK(t, "held", "show", "order/1", "--store", url), "2 messages")
	clitest.Contains(t, clitest.OK(t, "explain", head, "--store", url), "blocks its held key", "receiver says no")
	clitest.Contains(t, clitest.OK(t, "held", "retry", "order/2", "--store", url), "key order/2 of relay to-nats is due at once")
	clitest.Contains(t, clitest.OK(t, "held", "skip", "order/1", "--because", "broken", "--store", url), "skipped the blocking message of key order/1")
	clitest.OK(t, "held", "dead", "order/1", "--all", "--yes", "--because", "later", "--store", url)
	clitest.Contains(t, clitest.OK(t, "dead", "list", "--key", "order/1", "--from", "1h", "--store", url), "later")
	clitest.Contains(t, clitest.OK(t, "dead", "redrive", "--key", "order/1", "--yes", "--store", url), "redriven 1 dead letter")
	clitest.Fails(t, program.ExitFailed, "no such dead letter", "dead", "show", "99", "--store", url)
	clitest.Contains(t, clitest.OK(t, "explain", head, "--store", url), "discarded")

	clitest.PublishKeys(t, url, "order/7", "order/8")
	clitest.DeadLetterOne(t, url, "to-nats")
	var r store.Redrive
	clitest.Must(t, json.Unmarshal([]byte(clitest.OK(t, "redrive", "start", "--relay", "to-nats", "--yes", "--json", "--store", url)), &r))
	if r.State != store.RedriveFinished || r.Done != 2 {
		t.Errorf("redrive: %+v", r)
	}
}
