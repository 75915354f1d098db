package shop_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/examples/shop"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/saga/sagatest"
	"github.com/postrider/postrider/store"
)

// patience is how long a test waits for what must happen.
const patience = 5 * time.Minute

// TestFulfilmentIsNeverHalf explores orders of answers, refusals and timeouts that the saga can meet: the first 5,000 states, since all
// take an hour.
func TestFulfilmentIsNeverHalf(t *testing.T) {
	t.Parallel()
	for version := 1; version <= 2; version++ {
		sagatest.Explore(t, shop.Fulfilment(version, shop.Terms{ReviewAbove: 1}, unchanged), shop.Order{ID: "1"}, sagatest.Duplicates(0), sagatest.Limit(5_000))
	}
}

// TestFulfilmentByEventsIsNeverHalf does so for the contract, with services that undo what they have done.
func TestFulfilmentByEventsIsNeverHalf(t *testing.T) {
	t.Parallel()
	for version := 1; version <= 2; version++ {
		sagatest.ExploreContract(t, shop.FulfilmentByEvents(version, shop.Terms{}), sagatest.Cancel(), sagatest.Duplicates(0), sagatest.Limit(3_000))
	}
	sagatest.ExploreContract(t, shop.FulfilmentByEvents(1, shop.Terms{Compensate: saga.Observe}), sagatest.Duplicates(0), sagatest.Limit(3_000))
}

func unchanged(shop.Status) func(context.Context, *sql.Tx, *shop.Order) error {
	return func(context.Context, *sql.Tx, *shop.Order) error { return nil }
}

// TestOrders places orders of both kinds that are shipped or cancelled, and checks the ledger.
func TestOrders(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"/orders/orchestrated", "/orders"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := open(t)
			for _, c := range []struct {
				line   shop.Line
				status shop.Status
			}{
				{shop.Line{SKU: "P-01", Quantity: 3}, shop.Shipped},
				{shop.Line{SKU: "P-20", Quantity: 2}, shop.Cancelled}, // above the limit of the card
				{shop.Line{SKU: "P-01", Quantity: 997}, shop.Shipped}, // the rest
				{shop.Line{SKU: "P-01", Quantity: 1}, shop.Cancelled}, // sold out
				{shop.Line{SKU: "P-99", Quantity: 1}, shop.Cancelled}, // there is no such product
			} {
				answer, order := w.post(t, kind, c.line)
				if want := map[shop.Status]int{shop.Shipped: http.StatusCreated, shop.Cancelled: http.StatusConflict}[c.status]; answer != http.StatusAccepted && answer != want {
					t.Errorf("order of %+v: answer %d, want %d", c.line, answer, want)
				}
				if order = w.await(t, order.ID); order.Status != c.status {
					t.Errorf("order of %+v is %s (%s), want %s", c.line, order.Status, order.Reason, c.status)
				}
			}
			tally, err := w.ledger.Totals(t.Context())
			if err != nil || !tally.Exact() || tally.Shipped != 2 || tally.Cancelled != 3 {
				t.Errorf("ledger: %v, %+v", err, tally)
			}
		})
	}
}

// TestLedgerFindsWhatIsWrong breaks the records of each service and checks that the ledger says so.
func TestLedgerFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ service, statement string }{
		{"payments", `UPDATE payments SET state = 'REFUNDED'`},
		{"payments", `INSERT INTO payments SELECT 'again', order_id, customer, amount, state FROM payments`},
		{"payments", `INSERT INTO payments VALUES ('x', 'no order', 'x', 100, 'CAPTURED')`},
		{"inventory", `UPDATE products SET free = free + 1 WHERE sku = 'P-01'`},
		{"inventory", `UPDATE reservations SET state = 'RELEASED'`},
		{"shipping", `DELETE FROM parcels`},
		{"orders", `UPDATE orders SET status = 'CANCELLED'`},
		{"orders", `UPDATE orders SET status = 'PENDING'`},
	} {
		t.Run(c.service+": "+c.statement, func(t *testing.T) {
			t.Parallel()
			w := open(t)
			_, order := w.post(t, "/orders/orchestrated", shop.Line{SKU: "P-01", Quantity: 1})
			w.await(t, order.ID)
			if _, err := w.dbs[c.service].DB.ExecContext(t.Context(), c.statement); err != nil {
				t.Fatal(err)
			}
			if tally, err := w.ledger.Totals(t.Context()); err != nil || tally.Exact() {
				t.Errorf("%v, the ledger is exact: %+v", err, tally)
			}
		})
	}
}

// TestLedgerFindsOrdersThatAreCommittedLate: an order that is older than those that were checked before it was committed is counted.
func TestLedgerFindsOrdersThatAreCommittedLate(t *testing.T) {
	t.Parallel()
	w := open(t)
	if _, err := w.ledger.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, order := w.post(t, "/orders/orchestrated", shop.Line{SKU: "P-01", Quantity: 1})
	w.await(t, order.ID)
	if _, err := w.dbs["orders"].DB.ExecContext(t.Context(), `UPDATE orders SET created = created - 3600000000000`); err != nil {
		t.Fatal(err)
	}
	if tally, err := w.ledger.Totals(t.Context()); err != nil || !tally.Exact() || tally.Shipped != 1 {
		t.Errorf("ledger: %v, %+v", err, tally)
	}
}

// TestConfirmedMeanwhile: the saga of a choreographed order may end between two reads of the ledger, when the order is confirmed.
func TestConfirmedMeanwhile(t *testing.T) {
	t.Parallel()
	w := open(t)
	_, order := w.post(t, "/orders", shop.Line{SKU: "P-01", Quantity: 1})
	w.await(t, order.ID)
	become := func(s shop.Status) {
		if _, err := w.dbs["orders"].DB.ExecContext(t.Context(), `UPDATE orders SET status = $1`, s); err != nil {
			t.Error(err)
		}
	}
	become(shop.Pending)
	w.ledger.Sagas = readBefore{w.ledger.Sagas, func() { become(shop.Confirmed) }}
	if tally, err := w.ledger.Check(t.Context()); err != nil || !tally.Exact() || tally.Open != 1 {
		t.Errorf("ledger: %v, %+v", err, tally)
	}
}

// readBefore calls a function before it looks for a saga.
type readBefore struct {
	store.SagaReader
	then func()
}

func (r readBefore) SagasByID(ctx context.Context, ids []string) ([]store.SagaSummary, error) {
	r.then()
	return r.SagaReader.SagasByID(ctx, ids)
}

// TestLateIsNotBroken: a choreographed order that the tracker has not read is overdue, which breaks no promise.
func TestLateIsNotBroken(t *testing.T) {
	t.Parallel()
	w := open(t)
	const insert = `INSERT INTO orders (id, kind, customer, lines, total, status, created) VALUES ('1', 'choreographed', 'x', '[]', 0, 'PENDING', 1)`
	if _, err := w.dbs["orders"].DB.ExecContext(t.Context(), insert); err != nil {
		t.Fatal(err)
	}
	if tally, err := w.ledger.Check(t.Context()); err != nil || !tally.Exact() || tally.Open != 1 || tally.Overdue != 1 {
		t.Errorf("ledger: %v, %+v", err, tally)
	}
	if tally, err := w.ledger.Totals(t.Context()); err != nil || tally.Exact() {
		t.Errorf("at the end, an order is open: %v, %+v", err, tally)
	}
}

// TestCancelBeforeTheSagaBegins: an order that the tracker has not read can be cancelled later, and leaves no dead letter.
func TestCancelBeforeTheSagaBegins(t *testing.T) {
	t.Parallel()
	w := open(t)
	const insert = `INSERT INTO orders (id, kind, customer, lines, total, status, created) VALUES ('1', 'choreographed', 'x', '[]', 0, $1, 1)`
	if _, err := w.dbs["orders"].DB.ExecContext(t.Context(), insert, shop.Pending); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		status shop.Status
		answer int
	}{{shop.Pending, http.StatusServiceUnavailable}, {shop.Shipped, http.StatusConflict}} {
		if _, err := w.dbs["orders"].DB.ExecContext(t.Context(), `UPDATE orders SET status = $1`, want.status); err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, w.url+"/orders/1/cancel", nil)
		must(t, err)
		answer, err := http.DefaultClient.Do(r)
		must(t, err)
		must(t, answer.Body.Close())
		if answer.StatusCode != want.answer {
			t.Errorf("order %s: the answer is %d, want %d", want.status, answer.StatusCode, want.answer)
		}
	}
	for _, err := range deadletter.New(w.dbs["orders"]).ListDead(t.Context(), store.DeadFilter{}, 0, 0) {
		t.Errorf("there is a dead letter: %v", err)
	}
}

// TestReplenish: goods that are nearly sold out are ordered, which is an event.
func TestReplenish(t *testing.T) {
	t.Parallel()
	w := openWith(t, shop.Config{Replenish: 10 * time.Millisecond})
	_, order := w.post(t, "/orders/orchestrated", shop.Line{SKU: "P-01", Quantity: 950})
	if order = w.await(t, order.ID); order.Status != shop.Shipped {
		t.Fatalf("the order is %s: %s", order.Status, order.Reason)
	}
	for begun, free := time.Now(), 0; free != 1050; time.Sleep(10 * time.Millisecond) {
		must(t, w.dbs["inventory"].DB.QueryRowContext(t.Context(), `SELECT free FROM products WHERE sku = 'P-01'`).Scan(&free))
		if time.Since(begun) > patience {
			t.Fatalf("%d are in stock", free)
		}
	}
	var events int
	const published = `SELECT COUNT(*) FROM postrider_log WHERE type = 'stock.replenished' AND key = 'product/P-01'`
	must(t, w.dbs["inventory"].DB.QueryRowContext(t.Context(), published).Scan(&events))
	if tally, err := w.ledger.Totals(t.Context()); err != nil || !tally.Exact() || events != 1 {
		t.Errorf("%d events; the ledger: %v, %+v", events, err, tally)
	}
}

// TestAdministrationOfEachService: whoever reaches a service on a loopback address can read what its outbox does, and decide nothing.
func TestAdministrationOfEachService(t *testing.T) {
	t.Parallel()
	w := open(t)
	_, order := w.post(t, "/orders/orchestrated", shop.Line{SKU: "P-01", Quantity: 1})
	w.await(t, order.ID)
	for _, name := range shop.Names {
		answer, err := http.Get(w.urls[name] + "/postrider/api/v1/status")
		must(t, err)
		text, err := io.ReadAll(answer.Body)
		must(t, errors.Join(err, answer.Body.Close()))
		if answer.StatusCode != http.StatusOK || !strings.Contains(string(text), "to-broker") {
			t.Errorf("%s: %d: %s", name, answer.StatusCode, text)
		}
	}
	answer, err := http.Post(w.urls["orders"]+"/postrider/api/v1/sagas/"+order.ID+"/cancel", "application/json", strings.NewReader(`{"reason": "x"}`))
	must(t, err)
	must(t, answer.Body.Close())
	if answer.StatusCode < http.StatusBadRequest {
		t.Errorf("a visitor may decide: %d", answer.StatusCode)
	}
}

func TestFaultsAreLocal(t *testing.T) {
	t.Parallel()
	db, err := shop.OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "payments.db"))
	must(t, err)
	defer db.DB.Close()
	_, err = shop.Open(t.Context(), "payments", shop.Config{Database: db, Listen: ":0", Faults: new(shop.Faults)})
	if err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("error %v, want that the address is not a loopback address", err)
	}
}

// world is a running shop.
type world struct {
	dbs    map[string]shop.Database
	ledger *shop.Ledger
	url    string            // of orders
	urls   map[string]string // by service
}

func open(t *testing.T) *world {
	t.Helper()
	return openWith(t, shop.Config{Replenish: time.Hour})
}

func openWith(t *testing.T, c shop.Config) *world {
	t.Helper()
	dir, quiet := t.TempDir(), slog.New(slog.DiscardHandler)
	url, stop, err := shop.StartJetStream(filepath.Join(dir, "jetstream"), 0)
	must(t, err)
	t.Cleanup(stop)
	w := &world{dbs: make(map[string]shop.Database), urls: make(map[string]string)}
	for _, name := range shop.Names {
		db, err := shop.OpenSQLite(t.Context(), filepath.Join(dir, name+".db"))
		must(t, err)
		t.Cleanup(func() { must(t, db.DB.Close()) })
		c.Database, c.Broker, c.Logger = db, shop.JetStream{URL: url, Logger: quiet}, quiet
		c.Terms.StepTimeout, c.Terms.Deadline = patience, 2*patience // no order is cancelled because the machine is slow
		s, err := shop.Open(t.Context(), name, c)
		must(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			must(t, <-ended)
			must(t, s.Close())
		})
		w.dbs[name], w.urls[name] = db, s.URL()
	}
	w.url = w.urls["orders"]
	w.ledger = &shop.Ledger{
		Orders: w.dbs["orders"].DB, Inventory: w.dbs["inventory"].DB, Payments: w.dbs["payments"].DB, Shipping: w.dbs["shipping"].DB, Sagas: w.dbs["orders"],
	}
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) post(t *testing.T, path string, lines ...shop.Line) (status int, order shop.OrderView) {
	t.Helper()
	return w.postOrder(t, path, shop.Order{Customer: "customer-01", Lines: lines})
}

func (w *world) postOrder(t *testing.T, path string, o shop.Order) (status int, order shop.OrderView) {
	t.Helper()
	body, err := json.Marshal(o)
	must(t, err)
	answer, err := http.Post(w.url+path, "application/json", bytes.NewReader(body))
	must(t, err)
	return answer.StatusCode, decode(t, answer)
}

// await waits until an order is final.
func (w *world) await(t *testing.T, id string) shop.OrderView {
	t.Helper()
	return w.awaitAny(t, id, shop.Shipped, shop.Cancelled)
}

func (w *world) awaitAny(t *testing.T, id string, want ...shop.Status) shop.OrderView {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(20 * time.Millisecond) {
		answer, err := http.Get(fmt.Sprint(w.url, "/orders/", id))
		must(t, err)
		if order := decode(t, answer); slices.Contains(want, order.Status) {
			return order
		}
	}
	t.Fatalf("order %s does not become %s", id, want)
	return shop.OrderView{}
}

func decode(t *testing.T, answer *http.Response) (order shop.OrderView) {
	t.Helper()
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	if err := json.Unmarshal(text, &order); err != nil {
		t.Fatalf("%d: %s", answer.StatusCode, text)
	}
	return order
}
