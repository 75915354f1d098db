package main

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
)

func publishID(t *testing.T, url, key string, more ...string) string {
	t.Helper()
	args := append([]string{"publish", "--store", url, "--type", "order.placed", "--key", key, "--payload", "{}"}, more...)
	return strings.TrimSpace(ok(t, args...))
}

func TestExplainMessage(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	head := publishID(t, url, "order/1")
	follower := publishID(t, url, "order/1", "--id", "mine")
	contains(t, ok(t, "explain", head, "--store", url), "message "+head+": published", "no relay has run on this outbox yet")

	hold(t, url, "to-nats")
	contains(t, ok(t, "explain", head, "--store", url), "relay to-nats: blocks its held key", "receiver says no",
		"attempt at", "postrider held retry order/1", "attempt 3")
	contains(t, ok(t, "explain", follower, "--store", url), "queued in its held key", "1 message ahead of it")

	ok(t, "held", "dead", "order/1", "--all", "--yes", "--because", "x", "--store", url)
	contains(t, ok(t, "explain", head, "--store", url), "relay to-nats: dead letter 1, open", "nothing happens by itself", "postrider dead redrive 1")
	ok(t, "dead", "discard", "1", "--because", "too old", "--store", url)
	contains(t, ok(t, "explain", head, "--store", url), "dead letter 1, discarded", "by tester too old")

	waiting := publishID(t, url, "order/1")
	contains(t, ok(t, "explain", waiting, "--store", url), "waits in the log for its first delivery",
		"nobody works on this partition; start the program that runs this relay (postrider relay, if it publishes to a broker)")
	settleAll(t, openOutbox(t, url), "to-nats", delivered)
	contains(t, ok(t, "explain", waiting, "--store", url), "delivered, or skipped by the topics that the relay took then")

	fails(t, exitFailed, "it was rolled back or never published here", "explain", "nobody", "--store", url)
	fails(t, exitUsage, "give one of the ID of a message, --key and --relay", "explain", "--store", url)
}

// TestExplainImportedMessage: the message was never in the log, so no relay that reads the log has delivered it. Its own
// relay may be created later.
func TestExplainImportedMessage(t *testing.T) {
	t.Parallel()
	url, exported := newOutbox(t), newOutbox(t)
	id := publishID(t, exported, "order/1")
	deadLetterOne(t, exported, "to-nats")
	publishKeys(t, url, "order/1")
	settleAll(t, openOutbox(t, url), "to-audit", delivered)
	ok(t, "dead", "import", writeFile(t, ok(t, "dead", "export", "--store", exported)), "--store", url)
	explained := ok(t, "explain", id, "--store", url)
	contains(t, explained, "message "+id+": imported as dead letter 1, not in the log", "relay to-audit: nothing is known",
		"relay to-nats: dead letter 1, open")
	lacks(t, explained, "sequence", "delivered")
	contains(t, ok(t, "dead", "show", "1", "--store", url), "Z where it was imported from")

	ok(t, "dead", "redrive", "1", "--store", url)
	contains(t, ok(t, "explain", id, "--store", url), "since then: parked since", "due: nobody works", "start the program that runs this relay")
	o := openOutbox(t, url)
	settleDue(t, o, "to-nats", func(s *relay.Settlement, r relay.Record) { s.Removed = append(s.Removed, r.Message.Sequence) })
	contains(t, ok(t, "explain", id, "--store", url), "since then: delivered")
}

func TestExplainKey(t *testing.T) {
	t.Parallel()
	url := withHeld(t)
	contains(t, ok(t, "explain", "--key", "order/1", "--store", url), "key order/1: partition", "relay to-nats: held since", "3 messages parked")
	ok(t, "held", "dead", "order/1", "--all", "--yes", "--because", "x", "--store", url)
	contains(t, ok(t, "explain", "--key", "order/9", "--store", url), "not held; its partition has a backlog of 0",
		"; nobody works on it; start the program that runs this relay")
	contains(t, ok(t, "explain", "--key", "order/1", "--store", url),
		"3 open dead letters of this key: postrider dead list --relay to-nats --key order/1")
}

// lacks is the opposite of contains.
func lacks(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if strings.Contains(text, w) {
			t.Errorf("%q must not be in:\n%s", w, text)
		}
	}
}

// enroll registers a consumer and simulates that a process of it has run.
func enroll(t *testing.T, o *backend.Outbox, name string) inbox.Store[*sql.Tx] {
	t.Helper()
	store, ok := o.Transactions.(inbox.Store[*sql.Tx])
	if !ok {
		t.Fatalf("%T is no inbox.Store", o.Transactions)
	}
	must(t, store.Enroll(t.Context(), name))
	settleAll(t, o, name, func(_ *relay.Settlement, r relay.Record) { t.Errorf("a consumer reads %s of the log", r.Message.ID) })
	return store
}

// parkAside makes a consumer park a message.
func parkAside(t *testing.T, store inbox.Store[*sql.Tx], name string, m *postrider.Message) {
	t.Helper()
	tx, err := store.Begin(t.Context())
	must(t, err)
	must(t, store.Park(t.Context(), tx, name, []inbox.Parked{{Message: m, Reason: relay.ParkRetry, After: time.Hour, Cause: "no such order"}}))
	must(t, store.Commit(t.Context(), tx))
}

// overStores runs a test on a fresh outbox of each kind: each finds parked messages in its own way.
func overStores(t *testing.T, test func(t *testing.T, url string)) {
	for name, open := range map[string]func(t *testing.T) string{
		"sqlite": newOutbox,
		"mysql":  newMySQLOutbox,
		"postgres": func(t *testing.T) string {
			url := newPostgres(t)
			ok(t, "migrate", "up", "--store", url)
			return url
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// deliveredAgain settles a parked record as delivered.
func deliveredAgain(s *relay.Settlement, r relay.Record) {
	s.Removed = append(s.Removed, r.Message.Sequence)
	s.DeliveredCount++
}

func TestExplainLeavesConsumersOutOfTheLog(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	o := openOutbox(t, url)
	store := enroll(t, o, "shipping")
	id := publishID(t, url, "order/1")
	out := ok(t, "explain", id, "--store", url)
	contains(t, out, "consumer shipping: it reads a broker, not this log", "no relay has run on this outbox yet")
	lacks(t, out, "relay shipping", "delivered")
	contains(t, ok(t, "explain", "--key", "order/1", "--store", url), "consumer shipping: not held; it reads a broker, not this log")

	parkAside(t, store, "shipping", &postrider.Message{ID: id, Type: "order.placed", Topic: "orders", Key: "order/1", Source: "test", Time: time.Now()})
	contains(t, ok(t, "explain", id, "--store", url), "consumer shipping: blocks its held key", "no such order")
	other := publishID(t, url, "order/2")
	contains(t, ok(t, "explain", other, "--store", url), "it reads a broker, not this log; whether it has processed the message is not checked")

	settleAll(t, o, "to-nats", delivered)
	out = ok(t, "explain", id, "--store", url)
	contains(t, out, "consumer shipping: blocks its held key", "relay to-nats: delivered, or skipped by the topics that the relay took then")
	lacks(t, out, "no relay has run")
}

func TestExplainInTheConsumersDatabase(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	r := run(t, "explain", "m-2", "--store", url)
	lacks(t, r.err, "consumer")
	consume(t, url)
	settleAll(t, openOutbox(t, url), "to-nats", delivered)
	fails(t, exitFailed, "; whether a consumer of this database (ledger, view) has processed it was not checked", "explain", "m-2",
		"--store", url)
	out := ok(t, "explain", "m-1", "--store", url)
	contains(t, out, "message m-1: parked by consumer view ", ", not in the log", "consumer view: dead letter 1, open",
		"relay to-nats: nothing is known: the message is not in the log")
	lacks(t, out, "published", "sequence")
}

func TestExplainTellsOfRedrives(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, url string) {
		o := openOutbox(t, url)
		id := strings.TrimSpace(ok(t, "publish", "--store", url, "--type", "order.placed", "--payload", "{}"))
		deadLetterOne(t, url, "to-nats")
		explain := func() string { t.Helper(); return ok(t, "explain", id, "--store", url) }
		ok(t, "dead", "redrive", "1", "--by", "eva", "--store", url)
		contains(t, explain(), "relay to-nats: died and was sent back", "since then: parked since ", "due: nobody works on this partition", "redriven")

		settleDue(t, o, "to-nats", func(s *relay.Settlement, r relay.Record) {
			s.Dead = append(s.Dead, relay.Dead{Sequence: r.Message.Sequence, Reason: "refused", Cause: "total is negative", Attempts: 1})
		})
		contains(t, explain(), "dead letter 1, attempts exhausted after 10 attempts: receiver says no", "since then: dead letter 2, open")
		ok(t, "dead", "edit", "2", "--payload", `{"a":1}`, "--because", "total was wrong", "--by", "ida", "--yes", "--store", url)
		contains(t, explain(), "since then: dead letter 2, open", "1 time, see: postrider dead show 2")
		ok(t, "dead", "redrive", "--id", id, "--by", "ben", "--yes", "--store", url)
		settleDue(t, o, "to-nats", deliveredAgain)

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
	url := newOutbox(t)
	o := openOutbox(t, url)
	id := strings.TrimSpace(ok(t, "publish", "--store", url, "--type", "order.placed", "--payload", "{}"))
	deadLetterOne(t, url, "to-nats")
	explain := func() string { t.Helper(); return ok(t, "explain", id, "--store", url) }
	ok(t, "dead", "redrive", "1", "--store", url)
	settleDue(t, o, "to-nats", func(s *relay.Settlement, r relay.Record) {
		s.Parked = append(s.Parked, relay.Parked{Sequence: r.Message.Sequence, Reason: relay.ParkRetry, After: time.Hour, Attempts: 1})
	})
	contains(t, explain(), "since then: parked since ", "retry", "an attempt at ")
}

func TestExplainFindsParkedMessagesWithoutAKey(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, url string) {
		publish := func(more ...string) string {
			t.Helper()
			return strings.TrimSpace(ok(t, append([]string{"publish", "--store", url, "--type", "order.placed", "--payload", "{}"}, more...)...))
		}
		retried, due, done, delayed := publish("--topic", "retried"), publish("--topic", "due"), publish(), publish("--deliver-after", "24h")
		settleAll(t, openOutbox(t, url), "to-nats", func(s *relay.Settlement, r relay.Record) {
			pk := relay.Parked{Sequence: r.Message.Sequence, FromLog: true, Reason: relay.ParkRetry, After: time.Hour, Attempts: 2, Cause: "no"}
			switch r.Message.ID {
			case done:
				delivered(s, r)
				return
			case due:
				pk.After = 0
			case delayed:
				pk = relay.Parked{Sequence: r.Message.Sequence, FromLog: true, Reason: relay.ParkDelayed, After: r.Delay}
			}
			s.Parked = append(s.Parked, pk)
		})
		for id, words := range map[string][]string{
			retried: {"relay to-nats: parked since ", "retry", "attempts  2", "an attempt at ", "; nobody works on this partition", "no"},
			due:     {"relay to-nats: parked since ", "due: nobody works on this partition", "retry", "attempts  2"},
			delayed: {"relay to-nats: parked since ", "delayed", "an attempt at "},
			done:    {"relay to-nats: delivered, or skipped by the topics that the relay took then"},
		} {
			out := ok(t, "explain", id, "--store", url)
			contains(t, out, words...)
			lacks(t, out, "unless")
		}
	})
}
