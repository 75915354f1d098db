package clitest

import (
	"database/sql"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
)

// Enroll registers a consumer and simulates that a process of it has run.
func Enroll(t *testing.T, o *backend.Outbox, name string) inbox.Store[*sql.Tx] {
	t.Helper()
	store, ok := o.Transactions.(inbox.Store[*sql.Tx])
	if !ok {
		t.Fatalf("%T is no inbox.Store", o.Transactions)
	}
	Must(t, store.Enroll(t.Context(), name))
	SettleAll(t, o, name, func(_ *relay.Settlement, r relay.Record) { t.Errorf("a consumer reads %s of the log", r.Message.ID) })
	return store
}

// Park makes a consumer park a message.
func Park(t *testing.T, store inbox.Store[*sql.Tx], name string, m *postrider.Message) {
	t.Helper()
	tx, err := store.Begin(t.Context())
	Must(t, err)
	Must(t, store.Park(t.Context(), tx, name, []inbox.Parked{{Message: m, Reason: relay.ParkRetry, After: time.Hour, Cause: "no such order"}}))
	Must(t, store.Commit(t.Context(), tx))
}

// Consume makes one consumer dead-letter a message, and another consume up to an offset.
func Consume(t *testing.T, url string) {
	t.Helper()
	ctx, o := t.Context(), OpenOutbox(t, url)
	store, ok := o.Transactions.(inbox.Store[*sql.Tx])
	if !ok {
		t.Fatalf("%T is no inbox.Store", o.Transactions)
	}
	Must(t, store.Enroll(ctx, "view"))
	Must(t, store.Enroll(ctx, "ledger"))
	tx, err := store.Begin(ctx)
	Must(t, err)
	m := &postrider.Message{ID: "m-1", Type: "order.placed", Topic: "orders", Source: "test", Key: "order/9", Time: time.Now(), Payload: []byte("{}"),
		Headers: map[string]string{inbox.PositionHeader: `{"Epoch":"7","Partition":"orders/3","Offset":12}`}}
	_, err = store.Claim(ctx, tx, "view", []inbox.ClaimRequest{{ID: m.ID, Key: m.Key}})
	Must(t, err)
	Must(t, store.DeadLetter(ctx, tx, "view", []inbox.Dead{{Message: m, Reason: "refused", Cause: "no such order"}}, false))
	at := postrider.Position{Partition: "orders/0", Epoch: "1", Offset: 4711}
	_, err = store.Watermark(ctx, tx, "ledger", at)
	Must(t, err)
	Must(t, store.SetWatermark(ctx, tx, "ledger", at, nil))
	Must(t, store.Commit(ctx, tx))
}
