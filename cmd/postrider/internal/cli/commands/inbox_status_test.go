package commands_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/store"
)

func TestInboxStatus(t *testing.T) {
	t.Parallel()
	url := clitest.WithDead(t)
	clitest.Contains(t, clitest.Run(t, "inbox", "status", "--store", url).Err, "no consumer has run on this store")
	clitest.Fails(t, program.ExitNo, `there is no consumer "view"`, "inbox", "status", "--consumer", "view", "--store", url)

	clitest.Consume(t, url)
	out := clitest.OK(t, "inbox", "status", "--store", url)
	clitest.Contains(t, out, "CONSUMER", "view", "1 IDs", "ledger", "1 watermark", "ledger has consumed", "orders/0", "4,711", "MOVED", " ago")
	clitest.Contains(t, clitest.OK(t, "dead", "list", "--side", "consumer", "--store", url), "view", "refused")
	var status struct {
		Consumers []struct{ Dead, Remembered store.Count }
	}
	clitest.Must(t, json.Unmarshal([]byte(clitest.OK(t, "inbox", "status", "--consumer", "view", "--json", "--store", url)), &status))
	if len(status.Consumers) != 1 || status.Consumers[0].Dead.N != 1 || status.Consumers[0].Remembered.N != 1 {
		t.Errorf("status as JSON: %+v", status)
	}
	clitest.Contains(t, clitest.OK(t, "dead", "show", "4", "--store", url), "dead letter 4 of consumer view", "orders/3, offset 12, incarnation 7")
	clitest.Contains(t, clitest.OK(t, "dead", "redrive", "4", "--store", url), "redriven 1 dead letter")
}

func TestInboxStatusAsJSONIsThatOfStatus(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	store := clitest.Enroll(t, clitest.OpenOutbox(t, url), "view")
	out := clitest.OK(t, "inbox", "status", "--json", "--store", url)
	clitest.Contains(t, out, `"oldest_parked_seconds": 0`, `"oldest_dead_seconds": 0`, `"id": "tester-1"`, `"host": "here"`, `"version": "v0"`)
	clitest.Lacks(t, out, `"ID"`)
	clitest.Park(t, store, "view", &postrider.Message{ID: "m-1", Type: "order.placed", Topic: "orders", Key: "order/1", Source: "test", Time: time.Now()})
	var status struct {
		Consumers []struct {
			OldestParked float64 `json:"oldest_parked_seconds"`
		}
	}
	clitest.Must(t, json.Unmarshal([]byte(clitest.OK(t, "inbox", "status", "--json", "--store", url)), &status))
	if n := status.Consumers[0].OldestParked; n <= 0 || n > 3600 {
		t.Errorf("status as JSON: %+v", status)
	}
}

// TestInboxStatusOfADividedLog: a position by which nobody reads any more is not shown.
func TestInboxStatusOfADividedLog(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	in := clitest.Enroll(t, clitest.OpenOutbox(t, url), "view")
	tx, err := in.Begin(t.Context())
	clitest.Must(t, err)
	for _, p := range []store.LogPosition{
		{Partition: "ORDERS", Number: 1, Offset: 100, End: 150, Divided: true},
		{Partition: "ORDERS/0", Number: 1, Offset: 150, End: 150, Whole: "ORDERS", From: 1},
	} {
		clitest.Must(t, in.MovePosition(t.Context(), tx, "view", p))
	}
	clitest.Must(t, in.Commit(t.Context(), tx))
	out := clitest.OK(t, "inbox", "status", "--store", url)
	clitest.Contains(t, out, "ORDERS/0")
	clitest.Lacks(t, out, "ORDERS ")
}

// TestInboxStatusOfAConsumerThatReadsInVain: its topics are mistyped, so it has no lag and no messages.
func TestInboxStatusOfAConsumerThatReadsInVain(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	o := clitest.OpenOutbox(t, url)
	clitest.Enroll(t, o, "typo")
	in := clitest.Enroll(t, o, "view")
	for _, consumer := range []string{"typo", "view"} {
		tx, err := in.Begin(t.Context())
		clitest.Must(t, err)
		clitest.Must(t, in.MovePosition(t.Context(), tx, consumer, store.LogPosition{Partition: "ORDERS", Number: 1, Offset: 100, End: 100}))
		if consumer == "view" {
			_, err = in.Claim(t.Context(), tx, consumer, []store.ClaimRequest{{ID: "m-1"}})
			clitest.Must(t, err)
		}
		clitest.Must(t, in.Commit(t.Context(), tx))
	}
	out := clitest.OK(t, "inbox", "status", "--store", url)
	clitest.Contains(t, out, "typo: it has read all that its source has, and remembers no message", "run: postrider outbox remove typo --because")
	clitest.Lacks(t, out, "view: it has")
	clitest.OK(t, "outbox", "remove", "typo", "--because", "mistyped", "--yes", "--store", url)
	clitest.Lacks(t, clitest.OK(t, "inbox", "status", "--store", url), "typo")
}

func TestDeadLettersOfConsumersWereNotPublishedHere(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	clitest.Consume(t, url)
	out := clitest.OK(t, "dead", "show", "1", "--store", url)
	clitest.Contains(t, out, "dead letter 1 of consumer view", "stored ", " with sequence ")
	clitest.Lacks(t, out, "published")
}
