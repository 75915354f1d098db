package shopdemo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider/examples/shop"
	"github.com/postrider/postrider/store"
)

// settingsVariable has the settings of the service that this process runs, if it is one.
const settingsVariable = "POSTRIDER_TEST_SHOP_SERVICE"

func TestMain(m *testing.M) {
	text := os.Getenv(settingsVariable)
	if text == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	var s Settings
	err := json.Unmarshal([]byte(text), &s)
	if err == nil {
		err = RunService(ctx, s, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func testConfig(t *testing.T, out *bytes.Buffer) Config {
	t.Helper()
	return Config{
		Dir: t.TempDir(), Name: "SHOP", ShownStore: "SQLite", ShownPublisher: "JetStream in this process", Load: "ambient", Seed: 1, InFlight: 30, Out: out,
		Command: func(s Settings) (string, []string) {
			text, err := json.Marshal(s)
			if err != nil {
				panic(err)
			}
			return "/usr/bin/env", []string{settingsVariable + "=" + string(text), os.Args[0]}
		},
	}
}

// TestBrokenPromiseIsReported: what a scenario or the ledger finds wrong is a BrokenError.
func TestBrokenPromiseIsReported(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	cfg := testConfig(t, &out)
	cfg.For, cfg.Load = 3*time.Second, "none"
	w, err := open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if _, err := w.dbs["inventory"].DB.ExecContext(t.Context(), `UPDATE products SET free = free + 1 WHERE sku = 'P-01'`); err != nil {
		t.Fatal(err)
	}
	err = newScreen(cfg, w).watch(t.Context(), newLoad(w, 0))
	if broken, ok := errors.AsType[*BrokenError](err); !ok || !strings.Contains(broken.Error(), "1001 are free") {
		t.Errorf("error %v, want that the stock is wrong", err)
	}
	if !strings.Contains(out.String(), "ledger: NOT EXACT") {
		t.Errorf("the screen does not say it:\n%s", out.String())
	}
}

// TestSteadyLoad: under load, every order that can succeed does, and the sums are exact.
func TestSteadyLoad(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	cfg := testConfig(t, &out)
	cfg.For, cfg.Load, cfg.Limits = 5*time.Second, "40", ample
	err := Run(t.Context(), cfg)
	t.Log(out.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Every promise was kept.", "ledger: exact", ", 0 timed out,"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("there are escape sequences although it is no terminal")
	}
}

// TestLateOrdersAreReported: orders that timed out on a slow machine are named, and no promise is broken.
func TestLateOrdersAreReported(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	cfg := testConfig(t, &out)
	newScreen(cfg, &world{cfg: cfg}).result(shop.Tally{Cancelled: 3}, loadCounts{Orders: 8, TimedOut: 3}, 0, 0, nil)
	for _, want := range []string{"Every promise was kept.", "3 of them timed out", "this machine is too slow for the load"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
}

// TestLoads: half of the requests are orders, half of each kind; a tenth must be declined, 35% are reads, 5% are new customers.
func TestLoads(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]float64{"none": 0, "booth": 3, "ambient": 30, "200": 200} {
		if rate, err := RateOf(name); err != nil || rate != want {
			t.Errorf("load %s: %v requests per second, %v; want %v", name, rate, err, want)
		}
	}
	var mu sync.Mutex
	got := make(map[string]int)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		status := http.StatusOK
		switch body, _ := io.ReadAll(r.Body); {
		case strings.Contains(string(body), workstation):
			got["declined"]++
			fmt.Fprint(w, `{"status":"CANCELLED"}`)
			return
		case strings.HasPrefix(r.URL.Path, "/orders"):
			got[r.URL.Path]++
			fmt.Fprint(w, `{"status":"SHIPPED"}`)
			return
		case r.Method == http.MethodPost:
			status = http.StatusCreated
			fallthrough
		default:
			got[r.Method]++
			w.WriteHeader(status)
		}
	}))
	defer server.Close()
	members := make(map[string]member)
	for _, name := range shop.Names {
		members[name] = &inside{settings: Settings{Listen: strings.TrimPrefix(server.URL, "http://")}}
	}
	l := newLoad(&world{cfg: Config{Seed: 1}, members: members, http: server.Client()}, 1)
	const requests = 2000
	for range requests {
		if err := l.draw()(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for what, percent := range map[string]int{"/orders": 25, "/orders/orchestrated": 25, "declined": 10, "GET": 35, "POST": 5} {
		if n := got[what] * 100 / requests; n < percent-3 || n > percent+3 {
			t.Errorf("%d%% are %s, want about %d%%", n, what, percent)
		}
	}
	if len(l.broken) > 0 {
		t.Errorf("broken: %q", l.broken)
	}
}

// TestJudge: which ends of an order break a promise.
func TestJudge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		order                     shop.OrderView
		want                      shop.Status
		timedOut, soldOut, broken int
	}{
		{order: shop.OrderView{Status: shop.Shipped}, want: shop.Shipped},
		{order: shop.OrderView{Status: shop.Cancelled, Reason: "refused: charge: declined"}, want: shop.Cancelled},
		{order: shop.OrderView{Status: shop.Cancelled, Reason: "timed out: reserve"}, want: shop.Shipped, timedOut: 1},
		{order: shop.OrderView{Status: shop.Cancelled, Reason: "refused: reserve: out of stock"}, want: shop.Shipped, soldOut: 1},
		{order: shop.OrderView{Status: shop.Cancelled, Reason: "refused: charge: declined"}, want: shop.Shipped, broken: 1},
		{order: shop.OrderView{Status: shop.Shipped}, want: shop.Cancelled, broken: 1},
	} {
		var l load
		l.judge(placedOrder{kind: orchestrated, want: c.want}, c.order)
		if l.counts.TimedOut != c.timedOut || l.counts.SoldOut != c.soldOut || len(l.broken) != c.broken {
			t.Errorf("%+v instead of %s: %+v, broken %q", c.order, c.want, l.counts, l.broken)
		}
	}
}

func TestDashboardFits(t *testing.T) {
	t.Parallel()
	f := figures{
		elapsed: 42 * time.Second, p50: 21 * time.Millisecond, p95: 60 * time.Millisecond,
		tally: shop.Tally{Shipped: 602, Cancelled: 71, Open: 9, Charged: 1_234_567_89, Refunded: 12_345_67, Free: 18_200, Reserved: 12, Sold: 1_788, Bought: 20_000},
		sagas: map[store.SagaStatus]int64{store.SagaRunning: 8, store.SagaCompensating: 1},
	}
	for i, name := range shop.Names {
		f.services = append(f.services, serviceFigures{name: name, address: fmt.Sprint("127.0.0.1:", 18081+i), backlog: 3, parked: 8})
	}
	for _, status := range []shop.Status{shop.Pending, shop.Confirmed, shop.Shipped, shop.Cancelled} {
		f.latest = append(f.latest, latestOrder{newOrder(), "choreographed", 5_999_99, status})
	}
	cfg := Config{Out: &bytes.Buffer{}, For: time.Minute, ShownStore: "SQLite", ShownPublisher: "JetStream in this process", Load: "ambient", Seed: 123456, Width: func() int { return 80 }}
	s := newScreen(cfg, &world{cfg: cfg})
	s.width = 80
	for range 2 * chartWidth {
		s.rates = append(s.rates, 14)
	}
	s.rates = s.rates[:chartWidth]
	lines := s.dashboard(f)
	if len(lines) > 23 {
		t.Errorf("%d lines", len(lines))
	}
	var text strings.Builder
	for _, l := range lines {
		shown := l.Fit(false, 79)
		text.WriteString(shown + "\n")
		whole := 0
		for _, p := range l {
			whole += utf8.RuneCountInString(p.Text)
		}
		if whole > 79 {
			t.Errorf("%d columns: %s", whole, shown)
		}
	}
	t.Log("\n" + text.String())
	for _, want := range []string{"1,234,567.89", "exact", "CONFIRMED", "0:42 of 1:00", "dead"} {
		if !strings.Contains(strings.ToLower(text.String()), strings.ToLower(want)) {
			t.Errorf("%q is missing", want)
		}
	}
}
