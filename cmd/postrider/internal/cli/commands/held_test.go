package commands_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/store"
)

func TestHeldListAndShow(t *testing.T) {
	t.Parallel()
	url := clitest.WithHeld(t)
	clitest.Contains(t, clitest.OK(t, "held", "list", "--store", url), "order/1", "order/2", "receiver says no")
	if two := clitest.OK(t, "held", "list", "--limit", "1", "--store", url); strings.Count(two, "\n") != 2 {
		t.Errorf("with --limit 1:\n%s", two)
	}
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

// TestSkipNamesTheMessage: the decision is about the message that blocks the key, or the one that is named, and about no other.
func TestSkipNamesTheMessage(t *testing.T) {
	t.Parallel()
	clitest.OverStores(t, func(t *testing.T, url string) {
		first, second := clitest.PublishID(t, url, "order/1"), clitest.PublishID(t, url, "order/1")
		clitest.Hold(t, url, "to-nats")
		clitest.Contains(t, clitest.OK(t, "held", "show", "order/1", "--store", url), "blocked by    "+first,
			"held skip order/1 --message "+first+" --because", "held dead order/1 --message "+first+" --because")
		clitest.Contains(t, clitest.OK(t, "held", "list", "--json", "--store", url), `"message_id":"`+first+`"`)
		for _, verb := range []string{"skip", "dead"} {
			clitest.Fails(t, program.ExitFailed, "the key is blocked by message "+first+", not by "+second, "held", verb, "order/1",
				"--message", second, "--because", "x", "--store", url)
		}
		clitest.Contains(t, clitest.OK(t, "held", "skip", "order/1", "--because", "broken", "--store", url), "of relay to-nats, "+first+"; the queued")
		clitest.Contains(t, clitest.OK(t, "held", "dead", "order/1", "--because", "broken", "--store", url), "to the dead letters, "+second)
		clitest.Fails(t, program.ExitFailed, "no message blocks the key any more", "held", "skip", "order/1", "--because", "x", "--store", url)
	})
}

// TestNothingPassesADeadLetter: a key is held for a dead letter, and a message is queued after it.
func TestNothingPassesADeadLetter(t *testing.T) {
	t.Parallel()
	clitest.OverStores(t, func(t *testing.T, url string) {
		dead, queued := clitest.PublishID(t, url, "order/1"), clitest.PublishID(t, url, "order/1")
		o := clitest.OpenOutbox(t, url)
		clitest.SettleAll(t, o, "to-nats", func(s *store.Settlement, r store.Entry) {
			m := r.Message
			if m.ID == queued {
				s.Parked = append(s.Parked, store.ParkOutcome{Sequence: m.Sequence, Key: m.Key, FromLog: true, Reason: store.ParkHeld, Waits: true})
				return
			}
			s.Dead = append(s.Dead, store.DeadOutcome{Sequence: m.Sequence, Key: m.Key, FromLog: true, Reason: "attempts exhausted", Attempts: 10})
			s.Held = append(s.Held, store.HeldKey{Key: m.Key, Sequence: m.Sequence, Reason: store.ParkDead, Attempts: 10, UntilDecided: true})
		})
		for _, args := range [][]string{{"retry", "order/1"}, {"dead", "order/1", "--because", "x"}} {
			clitest.Fails(t, program.ExitFailed, "message "+dead+" is a dead letter, for which the key waits", append([]string{"held"}, append(args, "--store", url)...)...)
		}
		clitest.Contains(t, clitest.OK(t, "held", "show", "order/1", "--store", url), "held skip order/1 --message "+dead,
			"postrider dead list --relay to-nats --key order/1")
		clitest.SettleDue(t, o, "to-nats", func(_ *store.Settlement, r store.Entry) { t.Errorf("message %s is due", r.Message.ID) })
		clitest.Contains(t, clitest.OK(t, "held", "skip", "order/1", "--because", "cancelled", "--store", url), dead)
		due := ""
		clitest.SettleDue(t, o, "to-nats", func(_ *store.Settlement, r store.Entry) { due += r.Message.ID })
		if due != queued {
			t.Errorf("due after the skip: %q, want %s", due, queued)
		}
	})
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
