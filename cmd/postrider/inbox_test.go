package main

import (
	"database/sql"
	"encoding/json"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
)

func TestInboxStatus(t *testing.T) {
	t.Parallel()
	url := withDead(t)
	contains(t, run(t, "inbox", "status", "--store", url).err, "no consumer has run on this store")
	fails(t, exitNo, `there is no consumer "view"`, "inbox", "status", "--consumer", "view", "--store", url)

	consume(t, url)
	out := ok(t, "inbox", "status", "--store", url)
	contains(t, out, "CONSUMER", "view", "1 IDs", "ledger", "1 watermark", "ledger has consumed", "orders/0", "4,711", "MOVED", " ago")
	contains(t, ok(t, "dead", "list", "--side", "consumer", "--store", url), "view", "refused")
	var status struct{ Consumers []consumerStatus }
	must(t, json.Unmarshal([]byte(ok(t, "inbox", "status", "--consumer", "view", "--json", "--store", url)), &status))
	if len(status.Consumers) != 1 || status.Consumers[0].Dead.N != 1 || status.Consumers[0].Remembered.N != 1 {
		t.Errorf("status as JSON: %+v", status)
	}
	contains(t, ok(t, "dead", "show", "4", "--store", url), "dead letter 4 of consumer view", "orders/3, offset 12, epoch 7")
	contains(t, ok(t, "dead", "redrive", "4", "--store", url), "redriven 1 dead letter")
}

func TestInboxStatusAsJSONIsThatOfStatus(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	store := enroll(t, openOutbox(t, url), "view")
	out := ok(t, "inbox", "status", "--json", "--store", url)
	contains(t, out, `"oldest_parked": 0`, `"oldest_dead": 0`, `"id": "tester-1"`, `"host": "here"`, `"version": "v0"`)
	lacks(t, out, `"ID"`)
	parkAside(t, store, "view", &postrider.Message{ID: "m-1", Type: "order.placed", Topic: "orders", Key: "order/1", Source: "test", Time: time.Now()})
	var status struct {
		Consumers []struct {
			OldestParked time.Duration `json:"oldest_parked"`
		}
	}
	must(t, json.Unmarshal([]byte(ok(t, "inbox", "status", "--json", "--store", url)), &status))
	if status.Consumers[0].OldestParked <= 0 {
		t.Errorf("status as JSON: %+v", status)
	}
}

func TestDeadLettersOfConsumersWereNotPublishedHere(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	consume(t, url)
	out := ok(t, "dead", "show", "1", "--store", url)
	contains(t, out, "dead letter 1 of consumer view", "stored ", " with sequence ")
	lacks(t, out, "published")
}

// consume makes one consumer dead-letter a message, and another consume up to an offset.
func consume(t *testing.T, url string) {
	t.Helper()
	ctx, o := t.Context(), openOutbox(t, url)
	store, ok := o.Transactions.(inbox.Store[*sql.Tx])
	if !ok {
		t.Fatalf("%T is no inbox.Store", o.Transactions)
	}
	must(t, store.Enroll(ctx, "view"))
	must(t, store.Enroll(ctx, "ledger"))
	tx, err := store.Begin(ctx)
	must(t, err)
	m := &postrider.Message{ID: "m-1", Type: "order.placed", Topic: "orders", Source: "test", Key: "order/9", Time: time.Now(), Payload: []byte("{}"),
		Headers: map[string]string{inbox.PositionHeader: `{"Epoch":"7","Partition":"orders/3","Offset":12}`}}
	_, err = store.Claim(ctx, tx, "view", []inbox.ClaimRequest{{ID: m.ID, Key: m.Key}})
	must(t, err)
	must(t, store.DeadLetter(ctx, tx, "view", []inbox.Dead{{Message: m, Reason: "refused", Cause: "no such order"}}, false))
	at := postrider.Position{Partition: "orders/0", Epoch: "1", Offset: 4711}
	_, err = store.Watermark(ctx, tx, "ledger", at)
	must(t, err)
	must(t, store.SetWatermark(ctx, tx, "ledger", at, nil))
	must(t, store.Commit(ctx, tx))
}
