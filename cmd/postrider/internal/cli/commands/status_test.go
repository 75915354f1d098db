package commands_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/cli"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/store"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	clitest.Contains(t, clitest.OK(t, "status", "--store", url), "No relay has run on this outbox yet")
	clitest.Contains(t, clitest.OK(t, "status", "--store", url, "--json"), `"relays": []`)

	clitest.PublishKeys(t, url, "order/1", "order/2", "order/1")
	clitest.Hold(t, url, "to-nats")
	clitest.PublishKeys(t, url, "order/9")
	out := clitest.OK(t, "status", "--store", url, "--details")
	clitest.Contains(t, out, "TABLE  SIZE\nfile   ", " KiB · ", "to-nats", "PARTITION", "nobody", "tester-1", "gone",
		"to-nats: held keys; see: postrider held list --relay to-nats", "to-nats: nobody delivers")

	var s struct {
		Relays []struct {
			Backlog, Parked, Held store.Count
			Age                   float64 `json:"age_seconds"`
		}
	}
	clitest.Must(t, json.Unmarshal([]byte(clitest.OK(t, "status", "--store", url, "--json", "--relay", "to-nats")), &s))
	r := s.Relays[0]
	if r.Backlog.N != 1 || r.Parked.N != 3 || r.Held.N != 2 || r.Age <= 0 || r.Age > 3600 {
		t.Errorf("status is %+v", r)
	}
	clitest.Fails(t, program.ExitFailed, `there is no relay "to-moon" in this outbox; it has to-nats`, "status", "--store", url, "--relay", "to-moon")
}

// TestStatusShowsTopicsThatMatchNothing: a relay whose topics are mistyped.
func TestStatusShowsTopicsThatMatchNothing(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	clitest.PublishKeys(t, url, "order/1")
	o := clitest.OpenOutbox(t, url)
	for name, topic := range map[string]string{"to-nats": "order.plcaed", "all": "*"} {
		owner := store.Owner{ID: name, Topics: []string{topic}}
		_, err := o.Heartbeat(t.Context(), name, owner, time.Minute)
		clitest.Must(t, err)
		clitest.Must(t, o.Leave(t.Context(), name, owner))
		clitest.SettleAll(t, o, name, func(*store.Settlement, store.Entry) {}) // it skips all
	}
	out := clitest.OK(t, "status", "--store", url)
	clitest.Contains(t, out, "to-nats: no message so far had a topic that it takes (order.plcaed)")
	clitest.Lacks(t, out, "all: no message")
	clitest.PublishKeys(t, url, "order/2")
	clitest.SettleAll(t, o, "to-nats", clitest.Delivered)
	clitest.Lacks(t, clitest.OK(t, "status", "--store", url), "to-nats: no message")
}

func TestStatusLimits(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	clitest.PublishKeys(t, url, "order/1", "order/2")
	clitest.DeadLetterOne(t, url, "to-nats")
	clitest.OK(t, "status", "--store", url, "--max-dead", "2", "--max-held", "0", "--max-age", "1ns")
	clitest.Fails(t, program.ExitNo, "relay to-nats: 2 dead letters, more than 1", "status", "--store", url, "--max-dead", "1")
	clitest.PublishKeys(t, url, "order/3")
	clitest.Fails(t, program.ExitNo, "is above 1ns", "status", "--store", url, "--max-age", "1ns")
}

func TestStatusJudgesParkedMessages(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	clitest.PublishKeys(t, url, "order/1")
	clitest.Hold(t, url, "to-nats")
	clitest.Fails(t, program.ExitNo, "relay to-nats: a message has been parked for ", "status", "--store", url, "--max-parked", "1ns")
	clitest.Fails(t, program.ExitNo, ", longer than 0s", "status", "--store", url, "--max-parked", "0")
	clitest.OK(t, "status", "--store", url, "--max-parked", "1h", "--max-age", "1ns")
}

func TestStatusRefusesNegativeLimits(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"--max-age=-1s", "--max-parked=-1s", "--max-dead=-1", "--max-held=-1", "--max-unrouted=-1"} {
		name, _, _ := strings.Cut(limit, "=")
		clitest.Fails(t, program.ExitUsage, name+" must not be negative", "status", "--store", "sqlite:"+t.TempDir()+"/none.db", limit)
	}
}

func TestStatusSaysThatNobodyDeliversWhatIsParked(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	clitest.PublishKeys(t, url, "order/1")
	clitest.Hold(t, url, "to-nats")
	clitest.Contains(t, clitest.OK(t, "status", "--store", url), "to-nats: nobody delivers what is parked; start the program that runs this relay "+
		"(postrider relay, if it publishes to a broker), or if it is gone for good: postrider outbox remove to-nats")
	clitest.PublishKeys(t, url, "order/2")
	clitest.Contains(t, clitest.OK(t, "status", "--store", url), "to-nats: nobody delivers, and the log keeps what it has not delivered; start the program that runs")
}

// TestStatusWithoutRelays: a limit of age is exceeded by messages that no relay has ever taken.
func TestStatusWithoutRelays(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	clitest.OK(t, "status", "--store", url, "--max-age", "1ns")
	clitest.PublishKeys(t, url, "order/1")
	clitest.OK(t, "status", "--store", url, "--max-age", "1h")
	clitest.OK(t, "status", "--store", url)
	clitest.Fails(t, program.ExitNo, "no relay has run on this outbox: age ", "status", "--store", url, "--max-age", "1ns")
}

func TestStatusOfConsumers(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	store := clitest.Enroll(t, clitest.OpenOutbox(t, url), "view")
	clitest.Lacks(t, clitest.OK(t, "status", "--details", "--store", url), "9223372036854775806", "nobody processes")
	clitest.Park(t, store, "view", &postrider.Message{ID: "m-1", Type: "order.placed", Topic: "orders", Key: "order/1", Source: "test", Time: time.Now()})
	clitest.Contains(t, clitest.OK(t, "status", "--store", url), "view: nobody processes what is parked; start the program that runs this consumer, or if")
	clitest.Fails(t, program.ExitNo, "consumer view: a message has been parked for ", "status", "--store", url, "--max-parked", "1ns")
	out := clitest.OK(t, "status", "--json", "--store", url)
	clitest.Contains(t, out, `"id": "tester-1"`, `"host": "here"`, `"version": "v0"`, `"kind": "consumer"`)
	clitest.Lacks(t, out, `"ID"`, `"Host"`)
}

func TestStatusWatch(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	ctx, cancel := context.WithCancel(t.Context())
	var out, errs clitest.Buffer
	p := &program.Program{Stdout: &out, Stderr: &errs, Terminal: func(any) (int, bool) { return 80, true }}
	ended := make(chan int)
	go func() { ended <- cli.Run(ctx, p, []string{"status", "--watch=10ms", "--store", url}) }()
	out.Await(ctx, t, "\x1b[H\x1b[2J")
	clitest.PublishKeys(t, url, "order/1")
	clitest.Hold(t, url, "to-nats")
	out.Await(ctx, t, "held keys; see")
	cancel()
	if code := <-ended; code != program.ExitDone {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}

func TestStatusAndExplainShowUnroutedMessages(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	s := clitest.OpenOutbox(t, url)
	id := clitest.PublishID(t, url, "order/1", "--topic", "invoices")
	o := store.Owner{ID: "tester-1", Topics: []string{"orders", "payments.*"}}
	_, err := s.Heartbeat(t.Context(), "to-nats", o, time.Minute)
	clitest.Must(t, err)
	claim := store.LeaseClaim{Token: store.NewToken()}
	leases, err := s.Acquire(t.Context(), "to-nats", o, store.AcquireRequest{Claims: []store.LeaseClaim{claim}, TTL: time.Minute})
	clitest.Must(t, err)
	_, err = s.Settle(t.Context(), "to-nats", []store.Settlement{{
		Partition: 0, Token: leases[0].Token, Number: 1, Unrouted: []store.UnroutedCount{{Topic: "invoices", Count: 3}},
	}})
	clitest.Must(t, err)
	clitest.Contains(t, clitest.OK(t, "status", "--store", url), "UNROUTED TOPIC", "invoices", "unrouted messages: no relay took their topics; add the topic")
	clitest.Contains(t, clitest.OK(t, "status", "--store", url, "--json"), `"unrouted": [`, `"topic": "invoices"`, `"count": 3`, `"payments.*"`)
	clitest.OK(t, "status", "--store", url, "--max-unrouted", "3")
	clitest.Fails(t, program.ExitNo, "topic invoices: 3 messages unrouted, more than 2", "status", "--store", url, "--max-unrouted", "2")
	clitest.Contains(t, clitest.OK(t, "explain", id, "--store", url), "unrouted: no relay takes topic invoices", "add the topic to the topics of a relay",
		"relay to-nats: does not take topic invoices, only orders, payments.*")
	taken := clitest.PublishID(t, url, "order/1", "--topic", "orders")
	clitest.Lacks(t, clitest.OK(t, "explain", taken, "--store", url), "unrouted")
}
