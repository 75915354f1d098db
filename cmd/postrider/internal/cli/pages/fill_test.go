package pages_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/store"
)

// The identities that the pages name.
const (
	parkedID   = "0199f3a4-7e1c-7a52-9b61-3f0c2d1e4b5a" // a message that waits by itself
	blockingID = "0190f3c2-8d7e-7cc1-9c3e-3f3a1d1f0a77" // the message that blocks order/42
)

// fill makes an outbox with what the pages speak of: dead letters 1 to 20, of a relay and of consumers, redrives 1 to 3, held keys, and a
// message that waits by itself.
func fill(t *testing.T, url string) {
	t.Helper()
	clitest.OK(t, "migrate", "up", "--store", url)
	o := clitest.OpenOutbox(t, url)
	consumers := clitest.Enroll(t, o, "order-view")
	clitest.Enroll(t, o, "billing")
	clitest.PublishKeys(t, url, "order/42", "order/44")
	clitest.SettleAll(t, o, "to-nats", clitest.Delivered)
	clitest.DeadLetterOne(t, url, "to-partner")
	for n := range 18 {
		clitest.OK(t, "publish", "--store", url, "--type", "order.placed", "--topic", "orders", "--key", fmt.Sprint("order/", n), "--tenant", "acme",
			"--payload", fmt.Sprintf(`{"order":%d,"total":-1}`, n))
	}
	clitest.DeadLetterOne(t, url, "to-nats")
	refuse(t, consumers, "order-view", "order/9")
	refuse(t, consumers, "billing", "order/10")
	for range 3 {
		clitest.OK(t, "redrive", "start", "--yes", "--relay", "to-nats", "--key", "order/1", "--detach", "--max-redrives", "9", "--store", url)
	}
	clitest.OK(t, "publish", "--store", url, "--type", "order.placed", "--topic", "orders", "--key", "order/42", "--id", blockingID, "--payload", "{}")
	clitest.PublishKeys(t, url, "order/42", "order/42", "order/43")
	clitest.OK(t, "publish", "--store", url, "--type", "reminder", "--id", parkedID, "--payload", "{}")
	clitest.Must(t, o.RecordAttempts(t.Context(), []postrider.DeliveryAttempt{{
		MessageID: parkedID, Relay: "to-partner", Attempt: 1, At: time.Now(), Took: time.Second, Outcome: "retry", Status: 503,
	}}, time.Hour))
	held := map[string]bool{}
	clitest.SettleAll(t, o, "to-nats", func(s *store.Settlement, r store.Entry) {
		p := store.ParkOutcome{Sequence: r.Message.Sequence, Key: r.Message.Key, FromLog: true, Reason: store.ParkHeld, Waits: true}
		if m := r.Message; m.Key == "" || !held[m.Key] {
			p.Reason, p.Attempts, p.Cause, p.Waits = store.ParkRetry, 3, "receiver says no", m.Key != ""
			if m.Key == "" {
				p.After = time.Hour
			} else {
				held[m.Key] = true
				s.Held = append(s.Held, store.HeldKey{Key: m.Key, Sequence: m.Sequence, Reason: p.Reason, Cause: p.Cause, Attempts: 3, After: time.Hour})
			}
		}
		s.Parked = append(s.Parked, p)
	})
	clitest.SettleAll(t, o, "to-partner", clitest.Delivered)
	clitest.SettleAll(t, o, "to-old-broker", clitest.Delivered)
	clitest.SettleAll(t, o, "old-view", clitest.Delivered)
}

// refuse makes a consumer dead-letter a message.
func refuse(t *testing.T, s store.Inbox[*sql.Tx], consumer, key string) {
	t.Helper()
	tx, err := s.Begin(t.Context())
	clitest.Must(t, err)
	m := &postrider.Message{ID: "m-" + consumer, Type: "order.placed", Topic: "orders", Source: "shop", Key: key, Time: time.Now(), Payload: []byte("{}")}
	_, err = s.Claim(t.Context(), tx, consumer, []store.ClaimRequest{{ID: m.ID, Key: m.Key}})
	clitest.Must(t, err)
	clitest.Must(t, s.Park(t.Context(), tx, consumer, []store.ParkRequest{{Message: m, Dead: &store.DeadRequest{Reason: "refused"}, Cause: "no such order"}}))
	clitest.Must(t, s.Commit(t.Context(), tx))
}
