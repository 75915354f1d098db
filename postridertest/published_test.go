package postridertest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/postridertest"
	"github.com/postrider/postrider/store/memory"
)

func TestRequirePublished(t *testing.T) {
	t.Parallel()
	s, ctx := newShop(), t.Context()
	_, err := s.box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error {
		postridertest.RequireNotPublished(t, ctx, s.box, tx, placed)
		for _, id := range []string{"41", "42"} {
			if err := s.place(ctx, tx, id, 1999); err != nil {
				return err
			}
		}
		if err := tx.Savepoint("a"); err != nil {
			return err
		}
		if err := s.place(ctx, tx, "43", 1); err != nil {
			return err
		}
		if err := tx.RollbackTo("a"); err != nil {
			return err
		}
		got := postridertest.RequirePublished(t, ctx, s.box, tx, placed, postridertest.Key("order/42"),
			postridertest.Header("region", "eu"), postridertest.Payload(`{"total": 1999, "order_id": "42"}`),
			postridertest.Payload(orderPlaced{"42", 1999}), postridertest.Where(func(d orderPlaced) bool { return d.Total > 0 }))
		if got != (orderPlaced{"42", 1999}) {
			t.Errorf("got %+v", got)
		}
		postridertest.RequireNotPublished(t, ctx, s.box, tx, paid)
		postridertest.RequireNotPublished(t, ctx, s.box, tx, placed, postridertest.Key("order/43")) // undone
		postridertest.RequireNotPublished(t, ctx, s.box, tx, placed.WithSchemaVersion(2))
		if all := postridertest.Published(t, ctx, s.box, tx); len(all) != 2 || all[1].Key != "order/42" {
			t.Errorf("published %+v, want the two orders in order", all)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRequirePublishedFails: the failure says what was published instead.
func TestRequirePublishedFails(t *testing.T) {
	t.Parallel()
	s, ctx := newShop(), t.Context()
	tx, err := s.store.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	require := func(matchers ...postridertest.Matcher) string {
		return failure(func(t testing.TB) { postridertest.RequirePublished(t, ctx, s.box, tx, placed, matchers...) })
	}
	contains := func(got string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("failure %q does not contain %q", got, w)
			}
		}
	}
	contains(require(), "0 messages order.placed version 1 that match, want 1", "nothing was published")
	if _, err := s.box.Publish(ctx, tx, &postrider.Message{Type: "order.paid", Payload: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"41", "42"} {
		if err := s.place(ctx, tx, id, 7); err != nil {
			t.Fatal(err)
		}
	}
	contains(require(), "2 messages order.placed version 1 that match, want 1", `order.paid version 1, key "", payload {}: another type`)
	contains(require(postridertest.Key("order/43")), `key is "order/41", want "order/43"`, `key is "order/42"`)
	contains(require(postridertest.Header("region", "us")), `header region is "eu", want "us"`)
	contains(require(postridertest.Payload(orderPlaced{"42", 8})), "the payload is not {OrderID:42 Total:8}")
	contains(require(postridertest.Payload([]byte("x"))), "the payload is not x")
	contains(require(postridertest.Where(func(int) bool { return true })), "Where expects int, the definition has")
	contains(require(postridertest.Where(func(orderPlaced) bool { return false })), "the condition of Where does not hold")
	contains(failure(func(t testing.TB) {
		postridertest.RequireNotPublished(t, ctx, s.box, tx, placed, postridertest.Key("order/42"))
	}), "1 messages order.placed version 1 that match, want none")

	if _, err := s.box.Publish(ctx, tx, &postrider.Message{Type: "order.placed", Payload: []byte("no JSON")}); err != nil {
		t.Fatal(err)
	}
	contains(require(), "that its handlers cannot decode")
	if err := s.store.Commit(ctx, tx); err != nil {
		t.Fatal(err)
	}
	contains(require(), "transaction")
}

// TestPayloadComparesTimes: data that was decoded from JSON equals the data that was published.
func TestPayloadComparesTimes(t *testing.T) {
	t.Parallel()
	type reminder struct{ At time.Time }
	d := postrider.Define[reminder]("reminder.set")
	s, ctx, want := newShop(), t.Context(), reminder{At: time.Now()}
	m, err := d.New(want)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error {
		if _, err := s.box.Publish(ctx, tx, m); err != nil {
			return err
		}
		postridertest.RequirePublished(t, ctx, s.box, tx, d, postridertest.Payload(want))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
