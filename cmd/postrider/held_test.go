package main

import (
	"testing"
)

// withHeld returns an outbox in which key order/1 is held with two messages queued after its blocking message, and
// order/2 with none.
func withHeld(t *testing.T) string {
	t.Helper()
	url := newOutbox(t)
	publishKeys(t, url, "order/1", "order/2", "order/1", "order/1")
	hold(t, url, "to-nats")
	return url
}

func TestHeldListAndShow(t *testing.T) {
	t.Parallel()
	url := withHeld(t)
	contains(t, ok(t, "held", "list", "--store", url), "order/1", "order/2", "receiver says no", "retry")
	contains(t, ok(t, "held", "list", "--json", "--store", url), `"key":"order/1"`)
	contains(t, ok(t, "held", "show", "order/1", "--store", url), "key order/1 of relay to-nats", "3 messages", "order.placed",
		"postrider held retry order/1")
	contains(t, ok(t, "held", "show", "order/1", "--json", "--limit", "2", "--store", url), `"messages": [`, `"parked": 3`)
	fails(t, exitFailed, "key is not held: order/7 (any relay)", "held", "show", "order/7", "--store", url)
	fails(t, exitFailed, "key is not held: order/1 (other)", "held", "retry", "order/1", "--relay", "other", "--store", url)
	fails(t, exitFailed, `there is no relay or consumer "other" in this store; it has to-nats`, "held", "list", "--relay", "other", "--store", url)
	settleAll(t, openOutbox(t, url), "to-audit", delivered)
	r := run(t, "held", "list", "--relay", "to-audit", "--store", url)
	expect(t, r, exitDone, "no key is held")
}

func TestHeldDecisions(t *testing.T) {
	t.Parallel()
	url := withHeld(t)
	contains(t, ok(t, "held", "retry", "order/2", "--store", url), "key order/2 of relay to-nats is due at once")
	contains(t, ok(t, "held", "skip", "order/1", "--because", "broken", "--store", url), "skipped the blocking message of key order/1")
	contains(t, ok(t, "dead", "list", "--state", "discarded", "--store", url), "order/1")
	contains(t, ok(t, "held", "dead", "order/1", "--because", "later", "--store", url), "sent 1 message of key order/1")
	contains(t, ok(t, "dead", "list", "--store", url), "order/1")
}

func TestHeldDeadAllAsks(t *testing.T) {
	t.Parallel()
	url := withHeld(t)
	fails(t, exitUsage, "Send every parked message of key order/1 to the dead letters?", "held", "dead", "order/1", "--all", "--because", "x", "--store", url)
	contains(t, ok(t, "held", "dead", "order/1", "--all", "--yes", "--because", "x", "--store", url), "sent 3 messages of key order/1")
}

func TestKeyHeldByTwoRelaysNeedsAChoice(t *testing.T) {
	t.Parallel()
	url := withHeld(t)
	hold(t, url, "to-audit")
	fails(t, exitUsage, "choose one with --relay", "held", "retry", "order/1", "--store", url)
	ok(t, "held", "retry", "order/1", "--relay", "to-audit", "--store", url)
}

func TestShellQuote(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"order/42": "order/42", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'"} {
		if got := shellQuote(text); got != want {
			t.Errorf("%q becomes %s, want %s", text, got, want)
		}
	}
}
