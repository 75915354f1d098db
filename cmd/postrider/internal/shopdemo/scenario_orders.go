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

func shipOrder(ctx context.Context, s *stage) error {
	customer, product := "customer-new", shop.Product{SKU: "P-99", Name: "Typewriter", Price: 249_00, Stock: 10}
	if _, err := s.request(ctx, http.MethodPost, "payments", "/accounts", shop.Account{Customer: customer, Card: "4000-1234"}); err != nil {
		return err
	}
	s.by("POST /accounts", "a new customer")
	if _, err := s.request(ctx, http.MethodPost, "inventory", "/products", product); err != nil {
		return err
	}
	s.by("POST /products", "a new product, 10 at %s", product.Price)
	id := newOrder()
	s.by("POST /orders/orchestrated", "order %s of 2 × P-99 and 1 × P-01", short(id))
	begun := time.Now()
	r, err := s.place(ctx, id, orderRequest{Customer: customer, Lines: []shop.Line{{SKU: "P-99", Quantity: 2}, {SKU: "P-01", Quantity: 1}}}, 5)
	if err != nil {
		return err
	}
	took := time.Since(begun)
	if _, err := s.await(ctx, id, 0, shop.Shipped, shop.Cancelled); err != nil {
		return err
	}
	saga, err := s.printHistory(ctx, id)
	if err != nil {
		return err
	}
	order, err := s.order(ctx, id)
	if err != nil {
		return err
	}
	s.expect(r.status == http.StatusCreated || r.status == http.StatusAccepted, "the answer to the caller is %d, after %d ms", r.status, took.Milliseconds())
	s.expect(order.Status == shop.Shipped && order.Total == 2*product.Price+9_99, "the order is %s, its total of %s is that of the catalog", order.Status, order.Total)
	s.expect(saga.Status == store.SagaCompleted, "the saga is %s", saga.Status)
	s.expect(!saga.has("timed out", ""), "no step timed out")
	left, err := s.product(ctx, "P-99")
	s.expect(left.Stock == 8, "%d of 10 are left", left.Stock)
	return err
}

func cancelOrder(ctx context.Context, s *stage) error {
	before, err := s.product(ctx, "P-05")
	if err != nil {
		return err
	}
	id := newOrder()
	s.by("POST /orders/orchestrated", "order %s of 3 × P-05, to be held", short(id))
	order := orderRequest{Customer: "customer-01", Lines: []shop.Line{{SKU: "P-05", Quantity: 3}}, Hold: true}
	if _, err := s.place(ctx, id, order, 0); err != nil {
		return err
	}
	confirmed, err := s.await(ctx, id, 0, shop.Confirmed)
	if err != nil {
		return err
	}
	s.do("it is %s: %s are charged, and it waits for its release", confirmed.Status, confirmed.Total)
	r, err := s.request(ctx, http.MethodPatch, "orders", "/orders/"+id+"/cancel", nil)
	if err != nil {
		return err
	}
	s.by("PATCH /orders/ID/cancel", "the customer cancels it: %d", r.status)
	if _, err := s.await(ctx, id, 0, shop.Cancelled); err != nil {
		return err
	}
	saga, err := s.printHistory(ctx, id)
	if err != nil {
		return err
	}
	after, err := s.product(ctx, "P-05")
	if err != nil {
		return err
	}
	s.expect(saga.Status == store.SagaCompensated && saga.Cause == "cancelled", "the saga is %s, because it was %s", saga.Status, saga.Cause)
	s.expect(saga.has("step.undone", "charge") && saga.has("step.undone", "reserve"), "charge and reserve are undone, in one history")
	s.expect(after.Stock == before.Stock, "the stock of P-05 is %d, as before", after.Stock)
	r, err = s.request(ctx, http.MethodPatch, "orders", "/orders/"+id+"/cancel", nil)
	if err != nil {
		return err
	}
	s.expect(r.status == http.StatusConflict, "cancelling it a second time is refused: %d %s", r.status, r.text())

	shipped := newOrder()
	order.Hold = false
	if _, err := s.place(ctx, shipped, order, 5); err != nil {
		return err
	}
	if _, err := s.await(ctx, shipped, 0, shop.Shipped); err != nil {
		return err
	}
	r, err = s.request(ctx, http.MethodPatch, "orders", "/orders/"+shipped+"/cancel", nil)
	if err != nil {
		return err
	}
	s.expect(r.status == http.StatusConflict, "cancelling an order that is shipped is refused: %d %s", r.status, r.text())
	return nil
}

func declinePayment(ctx context.Context, s *stage) error {
	before, err := s.product(ctx, workstation)
	if err != nil {
		return err
	}
	id := newOrder()
	s.by("POST /orders/orchestrated", "order %s: 2 × %q at %s", short(id), before.Name, before.Price)
	begun := time.Now()
	r, err := s.place(ctx, id, orderRequest{Customer: "customer-02", Lines: []shop.Line{{SKU: workstation, Quantity: 2}}}, 5)
	if err != nil {
		return err
	}
	took := time.Since(begun)
	order, err := s.await(ctx, id, 0, shop.Cancelled)
	if err != nil {
		return err
	}
	saga, err := s.printHistory(ctx, id)
	if err != nil {
		return err
	}
	after, err := s.product(ctx, workstation)
	if err != nil {
		return err
	}
	s.expect(r.status == http.StatusConflict || r.status == http.StatusAccepted, "the answer to the caller is %d, after %d ms: %s", r.status, took.Milliseconds(), order.Reason)
	s.expect(saga.Status == store.SagaCompensated && saga.Cause == "refused" && strings.HasPrefix(saga.Detail, "charge declined"),
		"the saga is %s, because of: %s %s", saga.Status, saga.Cause, saga.Detail)
	s.expect(saga.turnsBackWith("charge", "reserve"), "the undo of reserve was sent by the transaction that took the refusal")
	s.expect(!saga.has("timed out", ""), "no step timed out")
	s.expect(after.Stock == before.Stock, "the stock of %s is %d, as before", workstation, after.Stock)
	return nil
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
