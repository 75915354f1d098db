package faults

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/examples/shop"
	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/itest/process"
	"github.com/postrider/postrider/store/postgres"
)

// shopWorld is the example shop: each service is a process with a schema of its own, and a supervisor starts it again when it ends.
type shopWorld struct {
	*postgresWorld
	broker    *process.Server
	brokerDir string
	listen    map[string]string // the address of each service
	lease     time.Duration
	stdin     *os.File // of the services, which end when it does
	stopped   chan struct{}
	running   sync.WaitGroup

	mu        sync.Mutex
	processes map[string]*process.Process
	placed    map[string]shop.Status // the orders, and how each may end if nothing is late
}

// TestShopCrash: the services of the shop, the broker and the database server are killed at random under orders of both kinds. Every
// order ends, and has exactly the effects that belong to it.
//
// With POSTRIDER_TORTURE, it does so once more with faults that come faster than leases end, so that nobody works for long, under orders
// that nobody waits for. Then the shop has to work off thousands of them, most of which are to be undone.
func TestShopCrash(t *testing.T) { //nolint:tparallel // one shop after the other, on two processors
	t.Parallel()
	t.Run("customers wait", func(t *testing.T) {
		openShop(t, shortLease).crashes(customers, true)
	})
	if os.Getenv("POSTRIDER_TORTURE") != "" {
		t.Run("nobody waits", func(t *testing.T) {
			w := openShop(t, longLease)
			w.pause, w.pauses = 200*time.Millisecond, time.Second
			w.crashes(3, false)
		})
	}
}

// longLease is the default of relays and consumers.
const longLease = 15 * time.Second

func openShop(t *testing.T, lease time.Duration) *shopWorld {
	t.Helper()
	stdin, open, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(stdin.Close(), open.Close()) })
	return &shopWorld{
		postgresWorld: newPostgresWorld(t), brokerDir: t.TempDir(), listen: make(map[string]string), lease: lease, stdin: stdin,
		stopped: make(chan struct{}), processes: make(map[string]*process.Process), placed: make(map[string]shop.Status),
	}
}

// crashes lets a number of customers order while everything is killed, and audits the shop.
func (w *shopWorld) crashes(customers int, wait bool) {
	t := w.t
	t.Helper()
	w.startBroker(0)
	faults := []fault{
		{"the database server was restarted at once", w.crash}, {"a backend of the database was killed", w.killBackend},
		{"the broker was killed", w.restartBroker},
	}
	for _, name := range shop.Names {
		w.supervise(name)
		faults = append(faults, fault{name + " was killed", func() { w.kill(name) }})
	}
	load, end := context.WithCancel(t.Context())
	defer end()
	placed := w.order(load, customers, wait)
	happened := w.disturb(loadTime(t, 12*time.Second), faults, func(happened int) bool { return happened >= len(faults) })
	end()
	placed()
	if t.Failed() { // nothing that follows would end
		t.FailNow()
	}
	ledger := w.ledger()
	w.awaitFinal(ledger)
	w.calm()
	tally := w.audit(ledger)
	t.Logf("%d faults; %d orders shipped worth %s, %d cancelled, %s refunded", happened, tally.Shipped, tally.Charged, tally.Cancelled, tally.Refunded)
	if tally.Shipped == 0 || tally.Cancelled == 0 || tally.Shipped+tally.Cancelled != len(w.placed) {
		t.Errorf("%d orders were placed: want some shipped, some cancelled, and no other", len(w.placed))
	}
}

func (w *shopWorld) startBroker(port int) {
	w.t.Helper()
	var err error
	if w.broker, err = process.StartNATS(w.t.Context(), servertest.Get(w.t, servertest.NATSBin), w.brokerDir, port); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.broker.Kill() })
}

func (w *shopWorld) restartBroker() {
	w.t.Helper()
	_ = w.broker.Kill() // it may have ended
	var port int
	if _, err := fmt.Sscanf(w.broker.URL, "nats://127.0.0.1:%d", &port); err != nil {
		w.t.Fatal(err)
	}
	w.startBroker(port)
}

// schemaOf is the URL of the database with the schema of a service.
func (w *shopWorld) schemaOf(service string) string { return w.url + "&search_path=shop_" + service }

// supervise runs a service until the test ends: like any supervisor, it starts it again whenever it ends.
func (w *shopWorld) supervise(name string) {
	w.t.Helper()
	w.exec("create schema shop_" + name)
	var l net.Listener
	var err error
	for range 100 { // a port that no connection has when the service starts again
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+w.random.IntN(20_000))); err == nil {
			break
		}
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.listen[name] = l.Addr().String()
	if err := l.Close(); err != nil {
		w.t.Fatal(err)
	}
	command := process.Command{
		Name: name, Path: program, Log: filepath.Join(w.dir, name+".log"), Stdin: w.stdin, Args: []string{
			"demo", "shop", "--service", name, "--store", w.schemaOf(name) + "&schema=shop_" + name, "--publisher", w.broker.URL, "--stream", "SHOP",
			"--listen", w.listen[name], "--seed", "1", "--step-timeout", "15s", "--deadline", "60s", "--undo-timeout", "5s", "--undo-attempts", "1000",
			"--lease-ttl", w.lease.String(),
		},
	}
	w.running.Go(func() {
		for {
			p, err := process.Start(context.WithoutCancel(w.t.Context()), command)
			if err != nil {
				w.t.Errorf("start %s: %v", name, err)
				return
			}
			w.mu.Lock()
			w.processes[name] = p
			w.mu.Unlock()
			select {
			case <-w.stopped:
				if w.t.Failed() {
					showService(w.t, p, command)
				}
				_ = p.Kill()
				return
			case <-p.Done():
				<-time.After(100 * time.Millisecond)
			}
		}
	})
	w.t.Cleanup(sync.OnceFunc(func() {
		select {
		case <-w.stopped:
		default:
			close(w.stopped)
		}
		w.running.Wait()
	}))
}

// kill kills a service, if it runs.
func (w *shopWorld) kill(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.processes[name]; p != nil {
		_ = p.Kill()
	}
}

// request sends a request to the orders service.
func (w *shopWorld) request(method, path string, body, answer any, headers ...string) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+w.listen["orders"]+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if text, err = io.ReadAll(res.Body); err != nil {
		return err
	}
	if res.StatusCode >= http.StatusBadRequest && res.StatusCode != http.StatusConflict {
		return fmt.Errorf("%s %s: %d: %s", method, path, res.StatusCode, text)
	}
	return json.Unmarshal(text, answer)
}

// place places an order that can be shipped, or that must be cancelled, and asks again until it is certain that the shop has it.
func (w *shopWorld) place(random *rand.Rand, want shop.Status) (id string) {
	id = postrider.NewID()
	path := []string{"/orders", "/orders/orchestrated"}[random.IntN(2)]
	body := map[string]any{"customer": fmt.Sprintf("customer-%02d", 1+random.IntN(50))}
	body["lines"] = []shop.Line{{SKU: fmt.Sprintf("P-%02d", 1+random.IntN(9)), Quantity: 1}, {SKU: "P-10", Quantity: 1}}
	if want == shop.Cancelled { // more than the card allows
		body["lines"] = []shop.Line{{SKU: "P-20", Quantity: 2}}
	}
	var placed shop.OrderView
	if left := awaitUntil(w.t, time.Now().Add(patience), func() string {
		if err := w.request(http.MethodPost, path, body, &placed, "Idempotency-Key", id, "Prefer", "wait=0"); err != nil {
			return err.Error()
		}
		return ""
	}); left != "" {
		w.t.Errorf("an order could not be placed for %s: %s", patience, left)
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.placed[id] = want
	return id
}

// customers is how many orders are open at most, so that whoever is killed does not leave a backlog.
const customers = 20

// order lets customers place orders until ctx ends. If they wait, it is for the end of one before the next.
func (w *shopWorld) order(ctx context.Context, customers int, waiting bool) (wait func()) {
	var callers sync.WaitGroup
	for range customers {
		random := rand.New(rand.NewPCG(w.random.Uint64(), 0))
		callers.Go(func() {
			for ctx.Err() == nil {
				want := shop.Shipped
				if random.IntN(6) == 0 {
					want = shop.Cancelled
				}
				id := w.place(random, want)
				if id == "" {
					return
				}
				for o := (shop.OrderView{}); ctx.Err() == nil && !o.Status.Final(); {
					<-time.After(time.Duration(random.IntN(500)) * time.Millisecond)
					if !waiting {
						break
					}
					_ = w.request(http.MethodGet, "/orders/"+id, nil, &o) // orders may be down
				}
			}
		})
	}
	return callers.Wait
}

// calm places an order that must be cancelled, and then one after another until one is shipped: under faults, all may have run into
// their deadlines.
func (w *shopWorld) calm() {
	w.t.Helper()
	if w.place(w.random, shop.Cancelled) == "" {
		w.t.FailNow()
	}
	id := ""
	w.awaitEnd("an order is shipped without faults", func() string {
		if id == "" {
			id = w.place(w.random, shop.Shipped)
		}
		if id == "" {
			w.t.FailNow()
		}
		var o shop.OrderView
		if err := w.request(http.MethodGet, "/orders/"+id, nil, &o); err != nil {
			return err.Error()
		}
		if o.Status == shop.Cancelled {
			id = ""
		}
		if o.Status != shop.Shipped {
			return "the last one is " + string(o.Status)
		}
		return ""
	})
}

// ledger opens what compares the services.
func (w *shopWorld) ledger() *shop.Ledger {
	w.t.Helper()
	open := func(service string) *sql.DB {
		db, err := sql.Open("pgx", w.schemaOf(service))
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = db.Close() })
		return db
	}
	pool, err := pgxpool.New(w.t.Context(), w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(pool.Close)
	sagas, err := postgres.New(pool, postgres.Config{Schema: "shop_orders"})
	if err != nil {
		w.t.Fatal(err)
	}
	return &shop.Ledger{
		Orders: open("orders"), Inventory: open("inventory"), Payments: open("payments"), Shipping: open("shipping"), Sagas: sagas,
	}
}

// awaitFinal waits until every order is final.
func (w *shopWorld) awaitFinal(ledger *shop.Ledger) {
	w.t.Helper()
	w.awaitNone("orders are not final", func() (int64, error) {
		tally, err := ledger.Check(w.t.Context())
		return int64(tally.Open), err
	})
}

// audit waits until every order is final, and lets the ledger compare the services.
func (w *shopWorld) audit(ledger *shop.Ledger) (tally shop.Tally) {
	w.t.Helper()
	w.awaitFinal(ledger)
	tally, total := ledger.Totals(w.t.Context())
	if err := cmp.Or(total, errors.Join(asErrors(tally.Broken)...)); err != nil {
		w.t.Errorf("a promise broke: the ledger is not exact: %v", err)
	}
	for id, want := range w.placed {
		if want == shop.Cancelled {
			w.checkCancelled(ledger.Orders, id)
		}
	}
	return tally
}

// checkCancelled checks that an order that the card does not allow was not shipped.
func (w *shopWorld) checkCancelled(orders *sql.DB, id string) {
	w.t.Helper()
	var status shop.Status
	if err := orders.QueryRowContext(w.t.Context(), "select status from orders where id = $1", id).Scan(&status); err != nil {
		w.t.Errorf("order %s: %v", id, err)
	} else if status != shop.Cancelled {
		w.t.Errorf("a promise broke: order %s exceeds the limit of the card and is %s", id, status)
	}
}

func asErrors(texts []string) (errs []error) {
	for _, text := range texts {
		errs = append(errs, errors.New(text))
	}
	return errs
}
