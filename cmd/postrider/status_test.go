package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	contains(t, ok(t, "status", "--store", url), "No relay has run on this outbox yet")
	contains(t, ok(t, "status", "--store", url, "--json"), `"relays": []`)

	publishKeys(t, url, "order/1", "order/2", "order/1")
	hold(t, url, "to-nats")
	publishKeys(t, url, "order/9")
	out := ok(t, "status", "--store", url, "--details")
	contains(t, out, "to-nats", "PARTITION", "nobody", "tester-1", "gone",
		"to-nats: held keys; see: postrider held list --relay to-nats", "to-nats: nobody delivers")

	var s relay.Status
	must(t, json.Unmarshal([]byte(ok(t, "status", "--store", url, "--json", "--relay", "to-nats")), &s))
	r := s.Relays[0]
	if r.Backlog.N != 1 || r.Parked.N != 3 || r.Held.N != 2 || r.Age <= 0 {
		t.Errorf("status is %+v", r)
	}
	fails(t, exitFailed, `there is no relay "to-moon" in this outbox; it has to-nats`, "status", "--store", url, "--relay", "to-moon")
}

func TestStatusShowsNotices(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	must(t, writeStatus(&b, "sqlite:x", relay.Status{Notices: []string{"the database was restored"}}, nil, false))
	contains(t, b.String(), "Note: the database was restored")
}

func TestStatusLimits(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	publishKeys(t, url, "order/1", "order/2")
	deadLetterOne(t, url, "to-nats")
	ok(t, "status", "--store", url, "--max-dead", "2", "--max-held", "0", "--max-age", "1ns")
	fails(t, exitNo, "relay to-nats: 2 dead letters, more than 1", "status", "--store", url, "--max-dead", "1")
	publishKeys(t, url, "order/3")
	fails(t, exitNo, "is above 1ns", "status", "--store", url, "--max-age", "1ns")
}

// TestStatusLimitsOfManyLetters: a status counts up to 10,000.
func TestStatusLimitsOfManyLetters(t *testing.T) {
	t.Parallel()
	many := relay.Count{N: relay.CountLimit, AtLeast: true}
	judged := func(limit int64, c relay.Count) string {
		o := statusOptions{maxDead: limit, maxHeld: limit, given: func(flag string) bool { return flag == "max-dead" || flag == "max-held" }}
		return fmt.Sprint(o.judge(relay.Status{Relays: []relay.RelayStatus{{Name: "r", Dead: c, Held: c}}}, nil))
	}
	for _, limit := range []int64{relay.CountLimit - 1, relay.CountLimit} {
		contains(t, judged(limit, many), "relay r: 10,000+ dead letters, more than ", "relay r: 10,000+ held keys, more than ")
	}
	if got := judged(relay.CountLimit, relay.Count{N: relay.CountLimit}); got != "<nil>" {
		t.Errorf("10,000 are above 10,000: %s", got)
	}
	for _, limit := range []string{"--max-dead=10001", "--max-held=20000"} {
		fails(t, exitUsage, "--max-dead and --max-held go up to 10,000", "status", "--store", newOutbox(t), limit)
	}
}

func TestStatusJudgesParkedMessages(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	publishKeys(t, url, "order/1")
	hold(t, url, "to-nats")
	fails(t, exitNo, "relay to-nats: a message has been parked for ", "status", "--store", url, "--max-parked", "1ns")
	fails(t, exitNo, ", longer than 0s", "status", "--store", url, "--max-parked", "0")
	ok(t, "status", "--store", url, "--max-parked", "1h", "--max-age", "1ns")
}

func TestStatusRefusesNegativeLimits(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"--max-age=-1s", "--max-parked=-1s", "--max-dead=-1", "--max-held=-1", "--max-unrouted=-1"} {
		name, _, _ := strings.Cut(limit, "=")
		fails(t, exitUsage, name+" must not be negative", "status", "--store", "sqlite:"+t.TempDir()+"/none.db", limit)
	}
}

func TestStatusSaysThatNobodyDeliversWhatIsParked(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	publishKeys(t, url, "order/1")
	hold(t, url, "to-nats")
	contains(t, ok(t, "status", "--store", url), "to-nats: nobody delivers what is parked; start the program that runs this relay "+
		"(postrider relay, if it publishes to a broker), or if it is gone for good: postrider outbox forget to-nats")
	publishKeys(t, url, "order/2")
	contains(t, ok(t, "status", "--store", url), "to-nats: nobody delivers, and the log keeps what it has not delivered; start the program that runs")
}

func TestStatusOfConsumers(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	store := enroll(t, openOutbox(t, url), "view")
	lacks(t, ok(t, "status", "--details", "--store", url), "9223372036854775806", "nobody processes")
	parkAside(t, store, "view", &postrider.Message{ID: "m-1", Type: "order.placed", Topic: "orders", Key: "order/1", Source: "test", Time: time.Now()})
	contains(t, ok(t, "status", "--store", url), "view: nobody processes what is parked; start the program that runs this consumer, or if")
	fails(t, exitNo, "consumer view: a message has been parked for ", "status", "--store", url, "--max-parked", "1ns")
	out := ok(t, "status", "--json", "--store", url)
	contains(t, out, `"id": "tester-1"`, `"host": "here"`, `"version": "v0"`, `"kind": "consumer"`)
	lacks(t, out, `"ID"`, `"Host"`)
}

func TestStatusWatch(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	ctx, cancel := context.WithCancel(t.Context())
	var out, errs syncBuffer
	p := &Program{Stdout: &out, Stderr: &errs, Terminal: func(any) (int, bool) { return 80, true }}
	ended := make(chan int)
	go func() { ended <- p.Run(ctx, []string{"status", "--watch=10ms", "--store", url}) }()
	out.await(ctx, t, "\x1b[H\x1b[2J")
	publishKeys(t, url, "order/1")
	hold(t, url, "to-nats")
	out.await(ctx, t, "held keys; see")
	cancel()
	if code := <-ended; code != exitDone {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}

func TestStatusAndExplainShowUnroutedMessages(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	store := openOutbox(t, url)
	id := publishID(t, url, "order/1", "--topic", "invoices")
	o := relay.Owner{ID: "tester-1", Topics: []string{"orders", "payments.*"}}
	_, err := store.Heartbeat(t.Context(), "to-nats", o, time.Minute)
	must(t, err)
	claim := relay.Claim{Token: relay.NewToken()}
	leases, err := store.Acquire(t.Context(), "to-nats", o, relay.AcquireRequest{Claims: []relay.Claim{claim}, TTL: time.Minute})
	must(t, err)
	_, err = store.Settle(t.Context(), "to-nats", []relay.Settlement{{
		Partition: 0, Token: leases[0].Token, Number: 1, Unrouted: []relay.UnroutedCount{{Topic: "invoices", Count: 3}},
	}})
	must(t, err)
	contains(t, ok(t, "status", "--store", url), "UNROUTED TOPIC", "invoices", "unrouted messages: no relay took their topics; add the topic")
	contains(t, ok(t, "status", "--store", url, "--json"), `"unrouted": [`, `"topic": "invoices"`, `"count": 3`, `"payments.*"`)
	ok(t, "status", "--store", url, "--max-unrouted", "3")
	fails(t, exitNo, "topic invoices: 3 messages unrouted, more than 2", "status", "--store", url, "--max-unrouted", "2")
	contains(t, ok(t, "explain", id, "--store", url), "unrouted: no relay takes topic invoices", "add the topic to the topics of a relay",
		"relay to-nats: does not take topic invoices, only orders, payments.*")
	taken := publishID(t, url, "order/1", "--topic", "orders")
	lacks(t, ok(t, "explain", taken, "--store", url), "unrouted")
}
