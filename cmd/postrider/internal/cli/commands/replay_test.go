package commands_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/replay"
	"github.com/postrider/postrider/store"
)

// delivered returns an outbox whose relay to-nats has delivered a message of each of these keys.
func delivered(t *testing.T, url string, keys ...string) string {
	t.Helper()
	clitest.PublishKeys(t, url, keys...)
	clitest.SettleAll(t, clitest.OpenOutbox(t, url), "to-nats", clitest.Delivered)
	return url
}

func TestReplay(t *testing.T) {
	t.Parallel()
	clitest.OverStores(t, func(t *testing.T, url string) {
		delivered(t, url, "order/1", "order/2", "order/1")
		start := []string{"replay", "start", "--relay", "to-nats", "--because", "lost", "--by", "eva", "--store", url}
		clitest.Contains(t, clitest.OK(t, append(start, "--key", "order/1", "--dry-run")...), "2 delivered messages match", "nothing was done")
		clitest.Contains(t, clitest.OK(t, append(start, "--all", "--dry-run", "--json")...), `"messages": 3`, `"undelivered": 0`)
		clitest.Contains(t, clitest.OK(t, append(start, "--type", "no.such", "--yes")...), "0 delivered messages match")
		clitest.Fails(t, program.ExitUsage, "Deliver 2 messages again by to-nats?", append(start, "--key", "order/1")...)
		var r replay.Replay
		clitest.Must(t, json.Unmarshal([]byte(clitest.OK(t, append(start, "--key", "order/1", "--consumer", "view", "--yes", "--json")...)), &r))
		if r.State != replay.Finished || r.Done != 2 || r.By != "eva" || r.Reason != "lost" || r.Consumer != "view" {
			t.Errorf("replay: %+v", r)
		}
		clitest.Contains(t, clitest.OK(t, "replay", "list", "--store", url), r.ID, "finished", "to-nats", "eva")
		clitest.Contains(t, clitest.OK(t, "replay", "list", "--json", "--store", url), `"state":"finished"`)
		clitest.Contains(t, clitest.OK(t, "replay", "show", r.ID, "--store", url), "for consumer", "view", `{"key":"order/1"}`, "lost")
		clitest.Contains(t, clitest.OK(t, "held", "show", "order/1", "--store", url), "replayed", "2 messages")
		var keys []string
		clitest.SettleDue(t, clitest.OpenOutbox(t, url), "to-nats", func(s *store.Settlement, rec store.Entry) {
			if id, consumer := rec.Message.Replay(); id != r.ID || consumer != "view" {
				t.Errorf("delivered again: %+v", rec.Message)
			}
			keys = append(keys, rec.Message.Key)
			clitest.DeliveredAgain(s, rec)
		})
		if !slices.Equal(keys, []string{"order/1", "order/1"}) {
			t.Errorf("delivered again: %v", keys)
		}
	})
}

func TestReplayLeftOffPausedAndCancelled(t *testing.T) {
	t.Parallel()
	url := delivered(t, clitest.NewOutbox(t), "order/1", "order/2", "order/3")
	var r replay.Replay
	out := clitest.OK(t, "replay", "start", "--relay", "to-nats", "--all", "--rate", "0.001", "--detach", "--yes", "--json", "--because", "lost", "--store", url)
	clitest.Must(t, json.Unmarshal([]byte(out), &r))
	clitest.Contains(t, clitest.OK(t, "replay", "show", r.ID, "--store", url), "running", "0.001/s", "postrider replay run "+r.ID)
	clitest.Contains(t, clitest.OK(t, "replay", "pause", r.ID, "--by", "eva", "--store", url), "is paused; 0 of 3 messages")
	ran := clitest.Run(t, "replay", "run", r.ID, "--store", url)
	clitest.Expect(t, ran, program.ExitPartly, "")
	clitest.Contains(t, ran.Out, "is paused: 0 messages parked")
	clitest.Fails(t, program.ExitFailed, "is paused: replay is in another state", "replay", "pause", r.ID, "--store", url)
	clitest.Contains(t, clitest.OK(t, "replay", "resume", r.ID, "--json", "--store", url), `"state": "running"`)
	clitest.Contains(t, clitest.OK(t, "replay", "cancel", r.ID, "--by", "eva", "--store", url), "is cancelled")
	clitest.Contains(t, clitest.OK(t, "replay", "show", r.ID, "--store", url), "cancelled", "eva")
	ran = clitest.Run(t, "replay", "run", r.ID, "--json", "--store", url)
	clitest.Expect(t, ran, program.ExitPartly, "")
	clitest.Contains(t, ran.Out, `"state": "cancelled"`)
	clitest.Fails(t, program.ExitFailed, "replay has ended", "replay", "resume", r.ID, "--store", url)
}

func TestReplayIsChecked(t *testing.T) {
	t.Parallel()
	url := delivered(t, clitest.NewOutbox(t), "order/1")
	for _, c := range []struct {
		words string
		args  []string
		code  int
	}{
		{"--relay is needed", []string{"--all"}, program.ExitUsage},
		{"choose messages by filters, or all with --all", []string{"--relay", "to-nats"}, program.ExitUsage},
		{"choose messages by filters, or all with --all", []string{"--relay", "to-nats", "--all", "--key", "order/1"}, program.ExitUsage},
		{"--key is empty", []string{"--relay", "to-nats", "--key", ""}, program.ExitUsage},
		{"leave out the rate", []string{"--relay", "to-nats", "--key", "order/1", "--rate", "5"}, program.ExitUsage},
		{"no such relay", []string{"--relay", "to-moon", "--all"}, program.ExitFailed},
	} {
		clitest.Fails(t, c.code, c.words, append([]string{"replay", "start", "--because", "x", "--yes", "--store", url}, c.args...)...)
	}
	clitest.Fails(t, program.ExitFailed, "no such replay", "replay", "show", "0190f3c2-8a4e-7d05-9d2b-0c5d1f6a7b88", "--store", url)
	clitest.Contains(t, clitest.Run(t, "replay", "list", "--store", url).Err, "no replays")
}
