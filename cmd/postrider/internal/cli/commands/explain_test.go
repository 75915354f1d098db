package commands_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/store"
)

func TestExplainMessage(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	head := clitest.PublishID(t, url, "order/1")
	second := clitest.PublishID(t, url, "order/1", "--id", "mine")
	clitest.Contains(t, clitest.OK(t, "explain", head, "--store", url), "message "+head+": published", "no relay has run on this outbox yet")

	clitest.Hold(t, url, "to-nats")
	clitest.Contains(t, clitest.OK(t, "explain", head, "--store", url), "relay to-nats: blocks its held key", "receiver says no",
		"attempt at", "postrider held retry order/1", "attempt 3")
	clitest.Contains(t, clitest.OK(t, "explain", second, "--store", url), "queued in its held key", "1 message ahead of it")

	clitest.OK(t, "held", "dead", "order/1", "--all", "--yes", "--because", "x", "--store", url)
	clitest.Contains(t, clitest.OK(t, "explain", head, "--store", url), "relay to-nats: dead letter 1, open", "nothing happens by itself", "postrider dead redrive 1")
	clitest.OK(t, "dead", "discard", "1", "--because", "too old", "--store", url)
	clitest.Contains(t, clitest.OK(t, "explain", head, "--store", url), "dead letter 1, discarded", "by tester too old")

	waiting := clitest.PublishID(t, url, "order/1")
	clitest.Contains(t, clitest.OK(t, "explain", waiting, "--store", url), "waits in the log for its first delivery",
		"nobody works on this partition; start the program that runs this relay (postrider relay, if it publishes to a broker)")
	clitest.SettleAll(t, clitest.OpenOutbox(t, url), "to-nats", clitest.Delivered)
	clitest.Contains(t, clitest.OK(t, "explain", waiting, "--store", url), "delivered, or skipped by the topics that the relay took then",
		"passed", "between 20")

	clitest.Fails(t, program.ExitFailed, "it was rolled back or never published here", "explain", "nobody", "--store", url)
	clitest.Fails(t, program.ExitUsage, "give a message ID, --key or --relay, and only one of them", "explain", "--store", url)
}

// TestExplainImportedMessage: the message was never in the log, so no relay that reads the log has delivered it. Its own
// relay may be created later.
func TestExplainImportedMessage(t *testing.T) {
	t.Parallel()
	url, exported := clitest.NewOutbox(t), clitest.NewOutbox(t)
	id := clitest.PublishID(t, exported, "order/1")
	clitest.DeadLetterOne(t, exported, "to-nats")
	clitest.PublishKeys(t, url, "order/1")
	clitest.SettleAll(t, clitest.OpenOutbox(t, url), "to-audit", clitest.Delivered)
	clitest.OK(t, "dead", "import", clitest.WriteFile(t, clitest.OK(t, "dead", "export", "--store", exported)), "--store", url)
	explained := clitest.OK(t, "explain", id, "--store", url)
	clitest.Contains(t, explained, "message "+id+": imported as dead letter 1, not in the log", "relay to-audit: nothing is known",
		"relay to-nats: dead letter 1, open")
	clitest.Lacks(t, explained, "sequence", "delivered")
	clitest.Contains(t, clitest.OK(t, "dead", "show", "1", "--store", url), "Z where it was imported from")

	clitest.OK(t, "dead", "redrive", "1", "--store", url)
	clitest.Contains(t, clitest.OK(t, "explain", id, "--store", url), "since then: parked since", "due: nobody works", "start the program that runs this relay")
	o := clitest.OpenOutbox(t, url)
	clitest.SettleDue(t, o, "to-nats", func(s *store.Settlement, r store.Entry) { s.Removed = append(s.Removed, r.Message.Sequence) })
	clitest.Contains(t, clitest.OK(t, "explain", id, "--store", url), "since then: delivered")
}

func TestExplainKey(t *testing.T) {
	t.Parallel()
	url := clitest.WithHeld(t)
	clitest.Contains(t, clitest.OK(t, "explain", "--key", "order/1", "--store", url), "key order/1: partition", "relay to-nats: held since", "3 messages parked")
	clitest.OK(t, "held", "dead", "order/1", "--all", "--yes", "--because", "x", "--store", url)
	clitest.Contains(t, clitest.OK(t, "explain", "--key", "order/9", "--store", url), "not held; its partition has a backlog of 0",
		"; nobody works on it; start the program that runs this relay")
	none := "no message with this key in the log of " + url
	clitest.Contains(t, clitest.OK(t, "explain", "--key", "order/9", "--store", url), none)
	clitest.PublishKeys(t, url, "order/9")
	clitest.Lacks(t, clitest.OK(t, "explain", "--key", "order/9", "--store", url), "no message")
	clitest.Lacks(t, clitest.OK(t, "explain", "--key", "order/1", "--store", url), "no message")
	clitest.Contains(t, clitest.OK(t, "explain", "--key", "order/1", "--store", url),
		"3 open dead letters of this key: postrider dead list --relay to-nats --key order/1")
}

func TestExplainLeavesConsumersOutOfTheLog(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	o := clitest.OpenOutbox(t, url)
	store := clitest.Enroll(t, o, "shipping")
	id := clitest.PublishID(t, url, "order/1")
	out := clitest.OK(t, "explain", id, "--store", url)
	clitest.Contains(t, out, "consumer shipping: it reads a broker, not this log", "no relay has run on this outbox yet")
	clitest.Lacks(t, out, "relay shipping", "delivered")
	clitest.Contains(t, clitest.OK(t, "explain", "--key", "order/1", "--store", url), "consumer shipping: not held; it reads a broker, not this log")

	clitest.Park(t, store, "shipping", &postrider.Message{ID: id, Type: "order.placed", Topic: "orders", Key: "order/1", Source: "test", Time: time.Now()})
	clitest.Contains(t, clitest.OK(t, "explain", id, "--store", url), "consumer shipping: blocks its held key", "no such order")
	other := clitest.PublishID(t, url, "order/2")
	clitest.Contains(t, clitest.OK(t, "explain", other, "--store", url), "it reads a broker, not this log; whether it has processed the message is not checked")

	clitest.SettleAll(t, o, "to-nats", clitest.Delivered)
	out = clitest.OK(t, "explain", id, "--store", url)
	clitest.Contains(t, out, "consumer shipping: blocks its held key", "relay to-nats: delivered, or skipped by the topics that the relay took then")
	clitest.Lacks(t, out, "no relay has run")
}

func TestExplainInTheConsumersDatabase(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	r := clitest.Run(t, "explain", "m-2", "--store", url)
	clitest.Lacks(t, r.Err, "consumer")
	clitest.Consume(t, url)
	clitest.SettleAll(t, clitest.OpenOutbox(t, url), "to-nats", clitest.Delivered)
	clitest.Fails(t, program.ExitFailed, "; whether a consumer of this database (ledger, view) has processed it was not checked", "explain", "m-2",
		"--store", url)
	out := clitest.OK(t, "explain", "m-1", "--store", url)
	clitest.Contains(t, out, "message m-1: parked by consumer view ", ", not in the log", "consumer view: dead letter 1, open",
		"relay to-nats: nothing is known: the message is not in the log")
	clitest.Lacks(t, out, "published", "sequence")
}

func TestExplainTellsOfRedrives(t *testing.T) {
	t.Parallel()
	clitest.OverStores(t, func(t *testing.T, url string) {
		o := clitest.OpenOutbox(t, url)
		id := strings.TrimSpace(clitest.OK(t, "publish", "--store", url, "--type", "order.placed", "--payload", "{}"))
		clitest.DeadLetterOne(t, url, "to-nats")
		explain := func() string { t.Helper(); return clitest.OK(t, "explain", id, "--store", url) }
		clitest.OK(t, "dead", "redrive", "1", "--by", "eva", "--store", url)
		clitest.Contains(t, explain(), "relay to-nats: died and was sent back", "since then: parked since ", "due: nobody works on this partition", "redriven")

		clitest.SettleDue(t, o, "to-nats", func(s *store.Settlement, r store.Entry) {
			s.Dead = append(s.Dead, store.DeadOutcome{Sequence: r.Message.Sequence, Reason: "refused", Cause: "total is negative", Attempts: 1})
		})
		clitest.Contains(t, explain(), "dead letter 1, attempts exhausted after 10 attempts: receiver says no", "since then: dead letter 2, open")
		clitest.OK(t, "dead", "edit", "2", "--payload", `{"a":1}`, "--because", "total was wrong", "--by", "ida", "--yes", "--store", url)
		clitest.Contains(t, explain(), "since then: dead letter 2, open", "1 time, see: postrider dead show 2")
		clitest.OK(t, "dead", "redrive", "--id", id, "--by", "ben", "--yes", "--store", url)
		clitest.SettleDue(t, o, "to-nats", clitest.DeliveredAgain)

		out := explain()
		at := 0
		for _, w := range []string{
			"died and was sent back\n", "died ", "dead letter 1, attempts exhausted after 10 attempts: receiver says no", "redriven ", "by eva\n",
			"died ", "dead letter 2, refused after 1 attempt: total is negative", "edited ", "by ida: total was wrong",
			"redriven ", "by ben, redrive 1\n", "since then: delivered\n",
		} {
			i := strings.Index(out[at:], w)
			if i < 0 {
				t.Fatalf("%q is missing after character %d in:\n%s", w, at, out)
			}
			at += i + len(w)
		}
	})
}

func TestExplainFindsWhatWasRedrivenAndFailedAgain(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	o := clitest.OpenOutbox(t, url)
	id := strings.TrimSpace(clitest.OK(t, "publish", "--store", url, "--type", "order.placed", "--payload", "{}"))
	clitest.DeadLetterOne(t, url, "to-nats")
	explain := func() string { t.Helper(); return clitest.OK(t, "explain", id, "--store", url) }
	clitest.OK(t, "dead", "redrive", "1", "--store", url)
	clitest.SettleDue(t, o, "to-nats", func(s *store.Settlement, r store.Entry) {
		s.Parked = append(s.Parked, store.ParkOutcome{Sequence: r.Message.Sequence, Reason: store.ParkRetry, After: time.Hour, Attempts: 1})
	})
	clitest.Contains(t, explain(), "since then: parked since ", "retry", "an attempt at ")
}

func TestExplainFindsParkedMessagesWithoutAKey(t *testing.T) {
	t.Parallel()
	clitest.OverStores(t, func(t *testing.T, url string) {
		publish := func(more ...string) string {
			t.Helper()
			return strings.TrimSpace(clitest.OK(t, append([]string{"publish", "--store", url, "--type", "order.placed", "--payload", "{}"}, more...)...))
		}
		retried, due, done, delayed := publish("--topic", "retried"), publish("--topic", "due"), publish(), publish("--deliver-after", "24h")
		clitest.SettleAll(t, clitest.OpenOutbox(t, url), "to-nats", func(s *store.Settlement, r store.Entry) {
			pk := store.ParkOutcome{Sequence: r.Message.Sequence, FromLog: true, Reason: store.ParkRetry, After: time.Hour, Attempts: 2, Cause: "no"}
			switch r.Message.ID {
			case done:
				clitest.Delivered(s, r)
				return
			case due:
				pk.After = 0
			case delayed:
				pk = store.ParkOutcome{Sequence: r.Message.Sequence, FromLog: true, Reason: store.ParkDelayed, After: r.Delay}
			}
			s.Parked = append(s.Parked, pk)
		})
		for id, words := range map[string][]string{
			retried: {"relay to-nats: parked since ", "retry", "attempts  2", "an attempt at ", "; nobody works on this partition", "no"},
			due:     {"relay to-nats: parked since ", "due: nobody works on this partition", "retry", "attempts  2"},
			delayed: {"relay to-nats: parked since ", "delayed", "an attempt at "},
			done:    {"relay to-nats: delivered, or skipped by the topics that the relay took then"},
		} {
			out := clitest.OK(t, "explain", id, "--store", url)
			clitest.Contains(t, out, words...)
			clitest.Lacks(t, out, "unless")
		}
	})
}

// TestExplainSaysWhyADestinationIsDown: a command reads the database itself, and gets the answer of the destination as it is.
func TestExplainSaysWhyADestinationIsDown(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	o := clitest.OpenOutbox(t, url)
	id := strings.TrimSpace(clitest.OK(t, "publish", "--store", url, "--type", "order.placed", "--key", "order/1", "--payload", "{}"))
	n, err := o.Partitions(t.Context())
	clitest.Must(t, err)
	process := store.Owner{ID: "a", Host: "host", Version: "v1", Topics: []string{"*"}}
	process.Destination = store.Destination{State: store.DestinationDown, For: time.Minute, NextTry: time.Second, Error: "answered 503: order 4711"}
	_, err = o.Heartbeat(t.Context(), "to-hook", process, time.Hour)
	clitest.Must(t, err)
	claim := store.LeaseClaim{Partition: postrider.PartitionOf("order/1", id, n), Token: store.NewToken()}
	_, err = o.Acquire(t.Context(), "to-hook", process, store.AcquireRequest{TTL: time.Hour, Claims: []store.LeaseClaim{claim}})
	clitest.Must(t, err)
	for _, args := range [][]string{{id}, {"--key", "order/1"}} {
		out := clitest.OK(t, append([]string{"explain", "--store", url}, args...)...)
		clitest.Contains(t, out, "nothing until the destination answers", ": answered 503: order 4711\n")
	}
}
