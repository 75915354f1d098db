package shop_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/examples/shop"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

// TestServicesUndoByThemselves: with saga.Observe, the tracker asks for nothing, and orders that are refused or cancelled are undone.
func TestServicesUndoByThemselves(t *testing.T) {
	t.Parallel()
	w := openWith(t, shop.Config{Replenish: time.Hour, Terms: shop.Terms{Compensate: saga.Observe}})
	for _, c := range []struct {
		line  shop.Line
		hold  bool
		cause string
	}{
		{shop.Line{SKU: "P-20", Quantity: 2}, false, string(saga.CauseRefused)}, // above the limit of the card
		{shop.Line{SKU: "P-99", Quantity: 1}, false, string(saga.CauseRefused)}, // there is no such product
		{shop.Line{SKU: "P-01", Quantity: 5}, true, string(saga.CauseCancelled)},
		{shop.Line{SKU: "P-01", Quantity: 5}, false, ""},
	} {
		_, order := w.postOrder(t, "/orders", shop.Order{Customer: "customer-01", Lines: []shop.Line{c.line}, Hold: c.hold})
		if c.hold {
			w.awaitAny(t, order.ID, shop.Confirmed)
			if answer, text := w.cancel(t, order.ID); answer != http.StatusOK && answer != http.StatusAccepted {
				t.Errorf("the answer to the request to cancel it is %d: %s", answer, text)
			}
		}
		order = w.await(t, order.ID)
		answer, text := w.cancel(t, order.ID)
		if answer != http.StatusConflict || !strings.Contains(text, "it is "+string(order.Status)) {
			t.Errorf("cancelling it once more: %d: %s", answer, text)
		}
		w.awaitCause(t, order.ID, c.cause)
	}
	var undos int
	const asked = `SELECT COUNT(*) FROM postrider_log WHERE type IN ('order.cancel', 'stock.release', 'card.refund')`
	must(t, w.dbs["orders"].DB.QueryRowContext(t.Context(), asked).Scan(&undos))
	if tally, err := w.ledger.Totals(t.Context()); err != nil || !tally.Exact() || tally.Shipped != 1 || tally.Cancelled != 3 || undos > 0 {
		t.Errorf("%d undos were requested; the ledger: %v, %+v", undos, err, tally)
	}
}

// cancel asks to cancel an order.
func (w *world) cancel(t *testing.T, id string) (status int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, w.url+"/orders/"+id+"/cancel", nil)
	must(t, err)
	answer, err := http.DefaultClient.Do(r)
	must(t, err)
	body, err := io.ReadAll(answer.Body)
	must(t, errors.Join(err, answer.Body.Close()))
	return answer.StatusCode, string(body)
}

// awaitCause waits until the saga of an order is compensated for a cause, or, without one, has completed.
func (w *world) awaitCause(t *testing.T, id string, cause string) {
	t.Helper()
	want := store.SagaCompensated
	if cause == "" {
		want = store.SagaCompleted
	}
	var found []store.SagaSummary
	var err error
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(20 * time.Millisecond) {
		found, err = w.dbs["orders"].SagasByID(t.Context(), []string{id})
		must(t, err)
		if len(found) == 1 && found[0].Status == want && found[0].Cause == cause {
			return
		}
	}
	t.Errorf("the saga does not become %s (%s): %+v", want, cause, found)
}
