package operations_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/itest/process"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/resilience"
	"github.com/postrider/postrider/store/postgres"
)

// slowServerVariable makes this program a server at the address.
const slowServerVariable = "POSTRIDER_SLOW_SERVER"

// slowServer answers after 50 ms, and after 30 s once it was asked for /slow.
func slowServer() {
	var slow atomic.Bool
	listener, err := net.Listen("tcp", os.Getenv(slowServerVariable))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("serving")
	fmt.Println(http.Serve(listener, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			slow.Store(true)
			return
		}
		answer := 50 * time.Millisecond
		if slow.Load() {
			answer = 30 * time.Second
		}
		select {
		case <-time.After(answer):
		case <-r.Context().Done():
		}
	})))
}

// workers is the concurrency of each relay.
const workers = 16

// waits are how long messages waited for their handler.
type waits struct {
	mu  sync.Mutex
	all []time.Duration
}

func (w *waits) add(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, d)
}

// p99 returns the 99th percentile of n waits, and forgets them.
func (w *waits) p99(t *testing.T, n int) time.Duration {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		w.mu.Lock()
		all := w.all
		if len(all) >= n {
			w.all = nil
			w.mu.Unlock()
			slices.Sort(all)
			return all[len(all)*99/100]
		}
		w.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d messages were handled", len(all), n)
		}
	}
}

// TestRelayNextToASlowServer: the server that the handlers of a relay call in their transactions, over HTTP, answers after 30 s, and no
// longer after 50 ms. The breaker opens as soon as calls have timed out, few calls are made at a time, and the messages of another relay on
// the same connections wait no longer than before.
//
// size: two relays and what they call.
func TestRelayNextToASlowServer(t *testing.T) {
	t.Parallel()
	address := fmt.Sprintf("127.0.0.1:%d", servertest.Port(t))
	server, err := process.Start(context.WithoutCancel(t.Context()), process.Command{
		Name: "slow server", Path: os.Args[0], Env: []string{slowServerVariable + "=" + address}, Log: t.TempDir() + "/log", Ready: "serving",
	})
	must(t, err)
	t.Cleanup(func() { must(t, server.Kill()) })
	set, err := resilience.New(resilience.Config{
		Default: resilience.Policy{Timeout: 2 * time.Second}, Logger: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	t.Cleanup(set.Close)
	payment := set.Operation("payment")
	client := &http.Client{Transport: &resilience.Transport{Operation: func(*http.Request) *resilience.Operation { return payment }}}
	get := func(ctx context.Context, path string) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
		if err != nil {
			return err
		}
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, answer.Body)
		return errors.Join(err, answer.Body.Close())
	}

	s, _, _ := newStore(t)
	o, err := outbox.New(s, outbox.Config{Source: "shop"})
	must(t, err)
	var fast waits
	var calls, most atomic.Int64
	run(t, s, "slow", func(ctx context.Context, _ pgx.Tx, _ *postrider.Message) error {
		for now := calls.Add(1); ; {
			if is := most.Load(); now <= is || most.CompareAndSwap(is, now) {
				break
			}
		}
		defer calls.Add(-1)
		return get(ctx, "/")
	})
	run(t, s, "fast", func(_ context.Context, _ pgx.Tx, m *postrider.Message) error {
		fast.add(time.Since(m.Time))
		return nil
	})
	n := 0
	publish := func(until func(sent int) bool) (sent int) {
		for ; !until(sent); sent++ {
			_, err := o.InTx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
				key := fmt.Sprint(n)
				_, err := o.Publish(ctx, tx, &postrider.Message{Type: "t", Topic: "slow", Key: key}, &postrider.Message{Type: "t", Topic: "fast", Key: key})
				return err
			})
			must(t, err)
			n++
			time.Sleep(10 * time.Millisecond) // the rate of the load
		}
		return sent
	}
	normal := fast.p99(t, publish(func(sent int) bool { return sent == 300 }))
	must(t, get(t.Context(), "/slow"))
	began := time.Now()
	target := payment.Instance(address)
	sent := publish(func(sent int) bool {
		return sent >= 300 && target.State().Breaker == resilience.BreakerOpen || time.Since(began) > patience
	})
	opened := time.Since(began)
	if state := target.State(); state.Breaker != resilience.BreakerOpen {
		t.Fatalf("the breaker did not open: %+v", state)
	}
	longest := fast.p99(t, sent)
	t.Logf("the breaker was open after %s; p99 of the other relay %s, before %s; %d calls at a time", opened, longest, normal, most.Load())
	if longest > max(2*normal, time.Second) { // a call takes 2 s
		t.Errorf("the messages of the other relay waited for %s, before for %s", longest, normal)
	}
	if most.Load() > workers {
		t.Errorf("%d calls at a time", most.Load())
	}
}

// newStore returns a store in a schema of its own, with as many connections as two relays need.
func newStore(t *testing.T) (s *postgres.Store, pool *pgxpool.Pool, schema string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	schema = "o" + strings.ReplaceAll(postrider.NewID(), "-", "")
	c, err := pgxpool.ParseConfig(servertest.Get(t, servertest.Postgres))
	must(t, err)
	c.MaxConns = 2*workers + 8
	pool, err = pgxpool.NewWithConfig(ctx, c)
	must(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(ctx, "create schema "+schema)
	must(t, err)
	t.Cleanup(func() {
		for deadline := time.Now().Add(patience); pool.Stat().AcquiredConns() > 0 && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond) // until a reading of the state has ended, which the schema would be dropped under
		}
		if _, err := pool.Exec(ctx, "drop schema "+schema+" cascade"); err != nil {
			t.Error(err)
		}
	})
	config := postgres.Config{Schema: schema, Partitions: workers}
	_, err = postgres.Migrate(ctx, pool, config, postgres.Latest)
	must(t, err)
	s, err = postgres.New(pool, config)
	must(t, err)
	return s, pool, schema
}

// run runs a relay of the topic with its name, whose handler is in the transaction of the relay's progress, until the test ends.
func run(t *testing.T, s *postgres.Store, name string, handler func(ctx context.Context, tx pgx.Tx, m *postrider.Message) error) {
	t.Helper()
	r, err := relay.New(s, relay.Config{
		Name: name, Topics: []string{name}, Concurrency: workers, TxBatch: 1, Logger: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	must(t, relay.HandleTxFunc(r, "t", handler))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() { stop(); must(t, <-ended) })
}
