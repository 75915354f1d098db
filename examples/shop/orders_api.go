package shop

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

// maxWait is how long a caller may wait for the end of an order.
const maxWait = 5 * time.Second

// OrderView is an order as the API returns it.
type OrderView struct {
	ID       string `json:"id"`
	Kind     string `json:"kind"`
	Customer string `json:"customer"`
	Lines    []Line `json:"lines"`
	Total    Money  `json:"total"`
	Status   Status `json:"status"`
	// Reason says why the order was cancelled.
	Reason string `json:"reason,omitzero"`
}

func (o *orders) routes() {
	o.mux.HandleFunc("POST /orders", o.handleCreate)
	o.mux.HandleFunc("POST /orders/orchestrated", o.handlePlace)
	o.mux.HandleFunc("GET /orders/{id}", o.handleGet)
	o.mux.HandleFunc("PATCH /orders/{id}/cancel", o.handleCancel)
	o.mux.HandleFunc("PATCH /orders/{id}/release", o.handleRelease)
	o.mux.HandleFunc("GET /sagas", o.handleSagas)
	o.mux.HandleFunc("GET /sagas/{id}", o.handleSaga)
}

// handleCreate creates an order that the services fulfil by reacting to events: 202.
func (o *orders) handleCreate(w http.ResponseWriter, r *http.Request) {
	order, ok := readOrder(w, r)
	if !ok {
		return
	}
	if err := o.create(r.Context(), order); err != nil {
		answer(w, 0, nil, err)
		return
	}
	w.Header().Set("Location", "/orders/"+order.ID)
	view, err := o.view(r.Context(), order.ID)
	answer(w, http.StatusAccepted, view, err)
}

// handlePlace places an order and waits for its end: 201 if it is shipped, 409 if it is cancelled, 202 if it takes longer than the
// caller prefers to wait. The header Idempotency-Key makes it safe to ask again.
func (o *orders) handlePlace(w http.ResponseWriter, r *http.Request) {
	order, ok := readOrder(w, r)
	if !ok {
		return
	}
	if err := o.place(r.Context(), order); err != nil {
		answer(w, 0, nil, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), preferredWait(r))
	defer cancel()
	result, err := o.fulfilment.Wait(ctx, order.ID)
	status := http.StatusCreated
	switch {
	case errors.Is(err, saga.ErrPending):
		w.Header().Set("Location", "/orders/"+order.ID)
		w.Header().Set("Retry-After", "1")
		status, err = http.StatusAccepted, nil
	case result.Status != saga.Completed:
		status = http.StatusConflict
	}
	if err != nil {
		answer(w, 0, nil, err)
		return
	}
	view, err := o.view(r.Context(), order.ID)
	answer(w, status, view, err)
}

// readOrder reads an order from a request. Lines for the same product become one.
func readOrder(w http.ResponseWriter, r *http.Request) (order Order, ok bool) {
	var request struct {
		Customer string `json:"customer"`
		Lines    []Line `json:"lines"`
		Hold     bool   `json:"hold"`
	}
	if !read(w, r, &request) {
		return order, false
	}
	order = Order{ID: cmp.Or(r.Header.Get("Idempotency-Key"), postrider.NewID()), Customer: request.Customer, Hold: request.Hold}
	index := make(map[string]int)
	for _, l := range request.Lines {
		if l.SKU == "" || l.Quantity < 1 || l.Quantity > 1000 {
			http.Error(w, "a line needs an SKU and a quantity of 1 to 1000", http.StatusBadRequest)
			return order, false
		}
		if i, found := index[l.SKU]; found {
			order.Lines[i].Quantity += l.Quantity
			continue
		}
		index[l.SKU] = len(order.Lines)
		order.Lines = append(order.Lines, l)
	}
	if order.Customer == "" || len(order.Lines) == 0 || len(order.ID) > postrider.MaxIDBytes {
		http.Error(w, "an order needs a customer and lines; an Idempotency-Key has at most 64 bytes", http.StatusBadRequest)
		return order, false
	}
	return order, true
}

// preferredWait is how long a caller prefers to wait, by the header "Prefer: wait=2" (RFC 7240).
func preferredWait(r *http.Request) time.Duration {
	if text, found := strings.CutPrefix(r.Header.Get("Prefer"), "wait="); found {
		if seconds, err := strconv.Atoi(text); err == nil && seconds >= 0 {
			return min(time.Duration(seconds)*time.Second, maxWait)
		}
	}
	return maxWait
}

// view reads an order.
func (o *orders) view(ctx context.Context, id string) (v OrderView, err error) {
	const query = `SELECT id, kind, customer, lines, total, status FROM orders WHERE id = $1`
	var lines string
	err = o.db.DB.QueryRowContext(ctx, query, id).Scan(&v.ID, &v.Kind, &v.Customer, &lines, &v.Total, &v.Status)
	if err == nil {
		err = json.Unmarshal([]byte(lines), &v.Lines)
	}
	if err != nil || v.Status != Cancelled {
		return v, err
	}
	result, err := o.engine.Get(ctx, id)
	if errors.Is(err, saga.ErrNotFound) { // removed, long after its end
		return v, nil
	}
	if c := result.Cause; c != nil {
		v.Reason = strings.Join(nonEmpty(string(c.Kind), c.Step, c.Reason, c.Text), ": ")
	}
	return v, err
}

func (o *orders) handleGet(w http.ResponseWriter, r *http.Request) {
	view, err := o.view(r.Context(), r.PathValue("id"))
	answer(w, http.StatusOK, view, err)
}

// handleCancel asks the saga of an order to turn back: 200 if the order is cancelled, 409 if it cannot be cancelled any more, 202 if the
// end takes longer than callers wait, 503 if the saga of a new order has not begun.
func (o *orders) handleCancel(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	view, err := o.view(r.Context(), id)
	if err != nil {
		answer(w, 0, nil, err)
		return
	}
	refused, err := o.cancel(r.Context(), view, cmp.Or(r.FormValue("reason"), "the customer changed their mind"))
	status := http.StatusOK
	switch {
	case errors.Is(err, saga.ErrNotFound) && !view.Status.Final(): // the tracker has not read yet that the order was created
		w.Header().Set("Retry-After", "1")
		http.Error(w, "order "+id+" is new: try again", http.StatusServiceUnavailable)
		return
	case errors.Is(err, saga.ErrNotFound): // removed, long after its end
		refused = "it is " + string(view.Status)
	case errors.Is(err, saga.ErrPending):
		w.Header().Set("Location", "/orders/"+id)
		status, err = http.StatusAccepted, nil
	}
	if refused != "" {
		http.Error(w, "order "+id+" cannot be cancelled: "+refused, http.StatusConflict)
		return
	}
	if err == nil {
		view, err = o.view(r.Context(), id)
	}
	answer(w, status, view, err)
}

func (o *orders) handleRelease(w http.ResponseWriter, r *http.Request) {
	order, err := o.view(r.Context(), r.PathValue("id"))
	if err == nil {
		err = o.release(r.Context(), order)
	}
	answer(w, http.StatusAccepted, order, err)
}

// handleSagas lists sagas, those that have not ended unless a status is given.
func (o *orders) handleSagas(w http.ResponseWriter, r *http.Request) {
	filter := store.SagaFilter{Status: store.OpenSagaStatuses}
	if status := r.FormValue("status"); status != "" {
		filter.Status = []store.SagaStatus{store.SagaStatus(status)}
	}
	found, err := o.db.ListSagas(r.Context(), filter, r.FormValue("after"), 100)
	answer(w, http.StatusOK, found, err)
}

// handleSaga returns the saga of an order with its history.
func (o *orders) handleSaga(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	found, err := o.db.SagasByID(r.Context(), []string{id})
	if err == nil && len(found) == 0 {
		err = sql.ErrNoRows
	}
	if err != nil {
		answer(w, 0, nil, err)
		return
	}
	shown := struct {
		store.SagaSummary
		History []store.SagaTransition `json:"history"`
	}{SagaSummary: found[0]}
	for t, err := range o.engine.History(r.Context(), id) {
		if err != nil {
			answer(w, 0, nil, err)
			return
		}
		shown.History = append(shown.History, t)
	}
	answer(w, http.StatusOK, shown, nil)
}

func nonEmpty(texts ...string) (found []string) {
	for _, text := range texts {
		if text != "" {
			found = append(found, text)
		}
	}
	return found
}
