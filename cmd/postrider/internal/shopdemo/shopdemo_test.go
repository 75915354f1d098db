package shopdemo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
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
	defer stop()
	var s Settings
	err := json.Unmarshal([]byte(text), &s)
	if err == nil {
		err = RunService(ctx, s, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func testConfig(t *testing.T, out *bytes.Buffer) Config {
	t.Helper()
	return Config{
		Dir: t.TempDir(), Name: "SHOP", ShownStore: "SQLite", ShownPublisher: "JetStream in this process", Load: "ambient", Seed: 1, InFlight: 30, Out: out,
		Limits: Limits{StepTimeout: 2 * patience, Deadline: 10 * patience}, // no scenario but that of timeouts depends on the machine
		Command: func(s Settings) (string, []string) {
			text, err := json.Marshal(s)
			if err != nil {
				panic(err)
			}
			return "/usr/bin/env", []string{settingsVariable + "=" + string(text), os.Args[0]}
		},
	}
}

func TestScenarios(t *testing.T) {
	t.Parallel()
	for _, s := range Scenarios {
		t.Run(fmt.Sprint(s.Number), func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			cfg := testConfig(t, &out)
			switch {
			case s.Number == 6:
				cfg.Limits.StepTimeout = time.Second
			case s.processes:
				cfg.For, cfg.Limits.StepTimeout, cfg.Limits.Deadline = 15*time.Second, 15*time.Second, time.Minute
			}
			err := RunScenario(t.Context(), cfg, s.Number)
			t.Log(out.String())
			if err != nil {
				t.Error(err)
			}
			if !strings.Contains(out.String(), "ledger exact") || strings.Contains(out.String(), "NO  ") {
				t.Error("it does not say that the ledger is exact")
			}
		})
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
	cfg.For, cfg.Load = 5*time.Second, "40"
	err := Run(t.Context(), cfg)
	t.Log(out.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Every promise was kept.", "ledger: exact"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("there are escape sequences although it is no terminal")
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
		f.services = append(f.services, serviceFigures{name: name, address: fmt.Sprint("127.0.0.1:", 8081+i), backlog: 3, parked: 8})
	}
	for _, status := range []shop.Status{shop.Pending, shop.Confirmed, shop.Shipped, shop.Cancelled} {
		f.latest = append(f.latest, latestOrder{newOrder(), "customer-07", 5_999_99, status})
	}
	cfg := Config{Out: &bytes.Buffer{}, For: time.Minute, ShownStore: "SQLite", ShownPublisher: "JetStream in this process", Load: "ambient", Seed: 123456, Width: func() int { return 80 }}
	s := newScreen(cfg, &world{cfg: cfg})
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
		shown := l.fit(false, 79)
		text.WriteString(shown + "\n")
		whole := 0
		for _, p := range l {
			whole += utf8.RuneCountInString(p.text)
		}
		if whole > 80 {
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
