package shopdemo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/postrider/postrider/examples/shop"
	"github.com/postrider/postrider/store"
)

// reply is the answer to a request.
type reply struct {
	status int
	body   []byte
}

// text is the body of a reply in one line.
func (r reply) text() string { return strings.TrimSpace(string(r.body)) }

// request sends a request to a service and reads the answer. headers are names and values.
func (w *world) request(ctx context.Context, method, service, path string, body any, headers ...string) (reply, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return reply{}, err
		}
		content = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+w.service(service).address()+path, content)
	if err != nil {
		return reply{}, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := w.http.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return reply{answer.StatusCode, text}, err
}

// errNotFound: what is asked for does not exist, or not yet.
var errNotFound = errors.New("not found")

// get reads JSON from a service.
func (w *world) get(ctx context.Context, service, path string, value any) error {
	r, err := w.request(ctx, http.MethodGet, service, path, nil)
	if err != nil {
		return err
	}
	if r.status == http.StatusNotFound {
		return fmt.Errorf("GET %s of %s: %w", path, service, errNotFound)
	}
	if r.status != http.StatusOK {
		return fmt.Errorf("GET %s of %s: %d: %s", path, service, r.status, r.text())
	}
	return json.Unmarshal(r.body, value)
}

// orderRequest is the body of POST /orders.
type orderRequest struct {
	Customer string      `json:"customer"`
	Lines    []shop.Line `json:"lines"`
	Hold     bool        `json:"hold,omitempty"`
}

// kind is a kind of orders, with the names of its steps.
type kind struct{ name, path, reserve, charge string }

// The kinds of orders.
var (
	orchestrated  = kind{"orchestrated", "/orders/orchestrated", "reserve", "charge"}
	choreographed = kind{"choreographed", "/orders", "stock.reserved", "card.charged"}
)

// place places an order with an ID and waits for at most some seconds.
func (w *world) place(ctx context.Context, k kind, id string, o orderRequest, wait int) (reply, error) {
	return w.request(ctx, http.MethodPost, "orders", k.path, o, "Idempotency-Key", id, "Prefer", fmt.Sprint("wait=", wait))
}

// order reads an order.
func (w *world) order(ctx context.Context, id string) (v shop.OrderView, err error) {
	return v, w.get(ctx, "orders", "/orders/"+id, &v)
}

// shownSaga is a saga with its history.
type shownSaga struct {
	store.SagaSummary
	History []store.SagaTransition `json:"history"`
}

// saga reads the saga of an order.
func (w *world) saga(ctx context.Context, id string) (s shownSaga, err error) {
	return s, w.get(ctx, "orders", "/sagas/"+id, &s)
}

// product reads a product.
func (w *world) product(ctx context.Context, sku string) (shop.Product, error) {
	var all []shop.Product
	if err := w.get(ctx, "inventory", "/products", &all); err != nil {
		return shop.Product{}, err
	}
	for _, p := range all {
		if p.SKU == sku {
			return p, nil
		}
	}
	return shop.Product{}, fmt.Errorf("there is no product %s", sku)
}

// fail turns the failure of handlers of a message type on or off.
func (w *world) fail(ctx context.Context, service, messageType string, on bool) error {
	r, err := w.request(ctx, http.MethodPost, service, fmt.Sprintf("/faults?type=%s&fail=%t", messageType, on), nil)
	if err == nil && r.status != http.StatusOK {
		err = fmt.Errorf("POST /faults of %s: %d: %s", service, r.status, r.text())
	}
	return err
}
