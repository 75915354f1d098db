package shopdemo

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/postrider/postrider/examples/shop"
	"github.com/postrider/postrider/store"
)

// workstation is the most expensive product: two of them are above the limit of every card.
const workstation = "P-20"

func shipOrders(ctx context.Context, s *stage) error {
	product := shop.Product{SKU: "P-99", Name: "Typewriter", Price: 249_00, Stock: 10}
	if _, err := s.request(ctx, http.MethodPost, "payments", "/accounts", shop.Account{Customer: "customer-new", Card: "4000-1234"}); err != nil {
		return err
	}
	s.by("POST /accounts", "a new customer")
	if _, err := s.request(ctx, http.MethodPost, "inventory", "/products", product); err != nil {
		return err
	}
	s.by("POST /products", "a new product, 10 at %s", product.Price)
	return s.bothKinds(ctx, shipOrder)
}

func shipOrder(ctx context.Context, s *stage, k kind) error {
	before, err := s.product(ctx, "P-99")
	if err != nil {
		return err
	}
	begun := time.Now()
	order := orderRequest{Customer: "customer-new", Lines: []shop.Line{{SKU: "P-99", Quantity: 2}, {SKU: "P-01", Quantity: 1}}}
	id, r, err := s.placed(ctx, k, order, 5)
	if err != nil {
		return err
	}
	answered := time.Since(begun)
	shipped, err := s.await(ctx, id, 0, shop.Shipped, shop.Cancelled)
	if err != nil {
		return err
	}
	saga, err := s.ended(ctx, id)
	if err != nil {
		return err
	}
	s.expect(r.status == http.StatusCreated || r.status == http.StatusAccepted, "the answer to the caller is %d, after %d ms", r.status, answered.Milliseconds())
	s.expect(shipped.Status == shop.Shipped && shipped.Total == 2*before.Price+9_99, "the order is %s, its total of %s is that of the catalog", shipped.Status, shipped.Total)
	s.expect(saga.Status == store.SagaCompleted, "the saga is %s", saga.Status)
	s.expect(!saga.has("timed out", ""), "no step timed out")
	after, err := s.product(ctx, "P-99")
	s.expect(after.Stock == before.Stock-2, "%d of %d are left", after.Stock, before.Stock)
	return err
}

// ended waits until the saga of an order has ended, and prints its history.
func (s *stage) ended(ctx context.Context, id string) (shownSaga, error) {
	if _, err := poll(ctx, patience, "the saga ends", func() (shownSaga, bool, error) {
		found, err := s.saga(ctx, id)
		return found, found.Status.Ended(), err
	}); err != nil {
		return shownSaga{}, err
	}
	return s.printHistory(ctx, id)
}

func cancelOrder(ctx context.Context, s *stage, k kind) error {
	before, err := s.product(ctx, "P-05")
	if err != nil {
		return err
	}
	order := orderRequest{Customer: "customer-01", Lines: []shop.Line{{SKU: "P-05", Quantity: 3}}, Hold: true}
	id, _, err := s.placed(ctx, k, order, 0)
	if err != nil {
		return err
	}
	confirmed, err := s.await(ctx, id, 0, shop.Confirmed)
	if err != nil {
		return err
	}
	s.do("it is %s: %s are charged, and it waits for its release", confirmed.Status, confirmed.Total)
	r, err := s.cancel(ctx, id)
	if err != nil {
		return err
	}
	s.by("PATCH /orders/ID/cancel", "the customer cancels it: %d", r.status)
	if _, err := s.await(ctx, id, 0, shop.Cancelled); err != nil {
		return err
	}
	if _, err := poll(ctx, patience, "the saga turns back", func() (shownSaga, bool, error) { // one that only observes had completed
		found, err := s.saga(ctx, id)
		return found, found.Cause != "", err
	}); err != nil {
		return err
	}
	saga, err := s.ended(ctx, id)
	if err != nil {
		return err
	}
	after, err := s.product(ctx, "P-05")
	if err != nil {
		return err
	}
	s.expect(saga.Status == store.SagaCompensated && saga.Cause == "cancelled", "the saga is %s, because it was %s", saga.Status, saga.Cause)
	s.expect(saga.has("step.undone", k.charge) && saga.has("step.undone", k.reserve), "%s and %s are undone, in one history", k.charge, k.reserve)
	s.expect(after.Stock == before.Stock, "the stock of P-05 is %d, as before", after.Stock)
	if r, err = s.cancelTooLate(ctx, id); err != nil {
		return err
	}
	s.expect(r.status == http.StatusConflict, "cancelling it a second time is refused: %s", r.text())

	order.Hold = false
	if id, _, err = s.placed(ctx, k, order, 5); err != nil {
		return err
	}
	if _, err := s.await(ctx, id, 0, shop.Shipped); err != nil {
		return err
	}
	if r, err = s.cancelTooLate(ctx, id); err != nil {
		return err
	}
	s.expect(r.status == http.StatusConflict, "cancelling an order that is shipped is refused: %s", r.text())
	return nil
}

// cancel asks orders to cancel an order, again if the saga of the order has not begun.
func (s *stage) cancel(ctx context.Context, id string) (reply, error) {
	return poll(ctx, patience, "the request to cancel the order is taken", func() (reply, bool, error) {
		r, err := s.request(ctx, http.MethodPatch, "orders", "/orders/"+id+"/cancel", nil)
		return r, r.status != http.StatusServiceUnavailable, err
	})
}

// cancelTooLate asks orders to cancel an order whose saga is past its pivot or has ended, until the answer is there.
func (s *stage) cancelTooLate(ctx context.Context, id string) (reply, error) {
	if _, err := poll(ctx, patience, "the saga cannot turn back", func() (shownSaga, bool, error) {
		found, err := s.saga(ctx, id)
		return found, found.PastPivot || found.Status == store.SagaCompensated, err
	}); err != nil {
		return reply{}, err
	}
	return poll(ctx, patience, "the request to cancel the order is answered", func() (reply, bool, error) {
		r, err := s.cancel(ctx, id)
		return r, r.status != http.StatusAccepted, err
	})
}

func declinePayment(ctx context.Context, s *stage, k kind) error {
	before, err := s.product(ctx, workstation)
	if err != nil {
		return err
	}
	begun := time.Now()
	order := orderRequest{Customer: "customer-02", Lines: []shop.Line{{SKU: workstation, Quantity: 2}}}
	id, r, err := s.placed(ctx, k, order, 5)
	if err != nil {
		return err
	}
	answered := time.Since(begun)
	cancelled, err := s.await(ctx, id, 0, shop.Cancelled)
	if err != nil {
		return err
	}
	saga, err := s.ended(ctx, id)
	if err != nil {
		return err
	}
	after, err := s.product(ctx, workstation)
	if err != nil {
		return err
	}
	s.expect(r.status == http.StatusConflict || r.status == http.StatusAccepted, "the answer to the caller is %d, after %d ms", r.status, answered.Milliseconds())
	s.expect(saga.Status == store.SagaCompensated && saga.Cause == "refused" && strings.Contains(saga.Detail, "declined"), "the saga is %s, because: %s", saga.Status, cancelled.Reason)
	if s.observed(k) {
		s.expect(saga.has("step.undone", k.reserve) && !saga.has("undo.sent", ""), "%s is undone, and nobody asked for it", k.reserve)
	} else {
		s.expect(saga.turnsBackWith(k.charge, k.reserve), "the undo of %s was sent by the transaction that took the refusal", k.reserve)
	}
	s.expect(!saga.has("timed out", ""), "no step timed out")
	failed, err := s.failedAttempts(ctx, "payments")
	if err != nil {
		return err
	}
	s.expect(failed == 0, "payments counts %d failed attempts: a refusal is an answer, so nothing is retried and no breaker opens", failed)
	s.expect(after.Stock == before.Stock, "the stock of %s is %d, as before", workstation, after.Stock)
	return nil
}

// failedAttempts counts the attempts of a service's relays and consumers that failed.
func (s *stage) failedAttempts(ctx context.Context, service string) (n int64, err error) {
	status, err := s.dbs[service].Store.(store.StatusReader).Status(ctx)
	for _, r := range status.Relays {
		n += r.Failed
	}
	return n, err
}

// turnsBackWith reports whether the transition that took the refusal of one step sent the undo of another.
func (s shownSaga) turnsBackWith(refused, undone string) bool {
	for _, t := range s.History {
		var took, sent bool
		for _, e := range t.Entries {
			took = took || e.Name == "step.refused" && e.Step == refused
			sent = sent || e.Name == "undo.sent" && e.Step == undone
		}
		if took {
			return sent
		}
	}
	return false
}
