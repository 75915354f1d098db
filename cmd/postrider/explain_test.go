package main

import (
	"strings"
	"testing"
)

func publishID(t *testing.T, url, key string, more ...string) string {
	t.Helper()
	args := append([]string{"publish", "--store", url, "--type", "order.placed", "--key", key}, more...)
	return strings.TrimSpace(ok(t, args...))
}

func TestExplainMessage(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	head := publishID(t, url, "order/1")
	follower := publishID(t, url, "order/1", "--id", "mine")
	contains(t, ok(t, "explain", head, "--store", url), "message "+head+": published", "no relay has run on this outbox yet")

	hold(t, url, "to-nats")
	contains(t, ok(t, "explain", head, "--store", url), "relay to-nats: parked as head of its held key", "receiver says no",
		"attempt at", "postrider held retry order/1", "attempt 3")
	contains(t, ok(t, "explain", follower, "--store", url), "parked behind its held key", "1 message ahead of it")

	ok(t, "held", "dead", "order/1", "--all", "--yes", "--because", "x", "--store", url)
	contains(t, ok(t, "explain", head, "--store", url), "relay to-nats: dead letter 1, open", "nothing happens by itself", "postrider dead redrive 1")
	ok(t, "dead", "discard", "1", "--because", "too old", "--store", url)
	contains(t, ok(t, "explain", head, "--store", url), "dead letter 1, discarded", "by tester too old")

	waiting := publishID(t, url, "order/1")
	contains(t, ok(t, "explain", waiting, "--store", url), "waits in the log for its first delivery", "nobody works on this partition")
	settleAll(t, openOutbox(t, url), "to-nats", delivered)
	contains(t, ok(t, "explain", waiting, "--store", url), "delivered, or passed over by its topics")

	fails(t, exitFailed, "it was rolled back or never published here", "explain", "nobody", "--store", url)
	fails(t, exitUsage, "give either the ID of a message or --key", "explain", "--store", url)
}

func TestExplainKey(t *testing.T) {
	t.Parallel()
	url := withHeld(t)
	contains(t, ok(t, "explain", "--key", "order/1", "--store", url), "key order/1: partition", "relay to-nats: held since", "3 messages parked")
	ok(t, "held", "dead", "order/1", "--all", "--yes", "--because", "x", "--store", url)
	contains(t, ok(t, "explain", "--key", "order/9", "--store", url), "not held; its partition has a backlog of 0", "nobody works on it")
	contains(t, ok(t, "explain", "--key", "order/1", "--store", url),
		"3 open dead letters of this key: postrider dead list --relay to-nats --key order/1")
}
