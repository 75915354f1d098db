package clitest

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store"
)

// Enroll registers a consumer and simulates that a process of it has run.
func Enroll(t *testing.T, o *backend.Outbox, name string) store.Inbox[*sql.Tx] {
	t.Helper()
	s, ok := o.Transactions.(store.Inbox[*sql.Tx])
	if !ok {
		t.Fatalf("%T is no store.Inbox", o.Transactions)
	}
	Must(t, s.Enroll(t.Context(), name))
	SettleAll(t, o, name, func(_ *store.Settlement, r store.Entry) { t.Errorf("a consumer reads %s of the log", r.Message.ID) })
	return s
}

// Park makes a consumer park a message.
func Park(t *testing.T, s store.Inbox[*sql.Tx], name string, m *postrider.Message) {
	t.Helper()
	tx, err := s.Begin(t.Context())
	Must(t, err)
	Must(t, s.Park(t.Context(), tx, name, []store.ParkRequest{{Message: m, Reason: store.ParkRetry, After: time.Hour, Cause: "no such order"}}))
	Must(t, s.Commit(t.Context(), tx))
}

// Consume makes one consumer dead-letter a message, and leaves the watermark of another, as an earlier version did.
func Consume(t *testing.T, url string) {
	t.Helper()
	ctx, o := t.Context(), OpenOutbox(t, url)
	s, ok := o.Transactions.(store.Inbox[*sql.Tx])
	if !ok {
		t.Fatalf("%T is no store.Inbox", o.Transactions)
	}
	Must(t, s.Enroll(ctx, "view"))
	Must(t, s.Enroll(ctx, "ledger"))
	tx, err := s.Begin(ctx)
	Must(t, err)
	m := &postrider.Message{ID: "m-1", Type: "order.placed", Topic: "orders", Source: "test", Key: "order/9", Time: time.Now(), Payload: []byte("{}"),
		Headers: map[string]string{inbox.PositionHeader: `{"Epoch":"7","Partition":"orders/3","Offset":12}`}}
	_, err = s.Claim(ctx, tx, "view", []store.ClaimRequest{{ID: m.ID, Key: m.Key}})
	Must(t, err)
	Must(t, s.Park(ctx, tx, "view", []store.ParkRequest{{Message: m, Dead: &store.DeadRequest{Reason: "refused"}, Cause: "no such order"}}))
	column := "partition"
	if strings.HasPrefix(url, "mysql") {
		column = "partition_id"
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO postrider_watermarks (consumer, "+column+", epoch, position, moved) VALUES (?, ?, ?, ?, ?)",
		"ledger", "orders/0", "1", 4711, time.Now().Add(-time.Minute).UnixMicro())
	Must(t, err)
	Must(t, s.Commit(ctx, tx))
}
