package pages_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

type sagaStore interface {
	store.Relay
	store.Outbox[*sql.Tx]
	saga.Store[*sql.Tx]
}

// order is the data of an instance. At is the step that it begins with.
type order struct {
	At      string `json:"at"`
	Address string `json:"address,omitempty"`
	Parcel  string `json:"parcel,omitempty"`
}

// engine runs the sagas that the pages speak of. Participants do not exist, so each instance waits at its first step.
type engine struct {
	t      *testing.T
	store  sagaStore
	box    *outbox.Outbox[*sql.Tx]
	orders *saga.Saga[*sql.Tx, order]
	broken atomic.Bool // a function of the definition panics
}

// steps are in the order of the definition.
const steps = "review check charge book points ship notify"

// fulfilment is a version of the saga order-fulfilment.
func (e *engine) fulfilment(version int) saga.Definition[order] {
	from := func(step string) func(order) bool {
		return func(o order) bool { return strings.Index(steps, o.At) <= strings.Index(steps, step) }
	}
	only := func(step string) func(order) bool { return func(o order) bool { return o.At == step } }
	request := func(name string) saga.Request[order, order, order] {
		return saga.Request[order, order, order]{
			Name: name, OnlyIf: from(name), Timeout: time.Hour, Step: saga.DefineStep[order, order]("order." + name).WithTopic("participants"),
			Command: func(o order) order {
				if name == "ship" && e.broken.Load() {
					panic("no address")
				}
				return o
			},
		}
	}
	return saga.Definition[order]{Name: "order-fulfilment", Version: version, Steps: []saga.Step[order]{
		saga.Ask[order]{Name: "review", OnlyIf: only("review"), Timeout: saga.NoTimeout,
			Question: func(order) string { return "Release it?" }, Options: []string{"release", "refuse"}},
		saga.Await[order, map[string]string]{Name: "check", OnlyIf: only("check"), Signal: postrider.Define[map[string]string]("order.reviewed"), Timeout: saga.NoTimeout},
		saga.Parallel[order]{Name: "pay", OnlyIf: from("charge"), Steps: []saga.Step[order]{
			saga.Parallel[order]{Name: "card", Steps: []saga.Step[order]{request("charge"), request("book")}},
			request("points"),
		}},
		request("ship"),
		request("notify"),
	}}
}

// newEngine starts an engine on an outbox.
func newEngine(t *testing.T, url string) *engine {
	t.Helper()
	e := &engine{t: t, store: clitest.OpenOutbox(t, url).Transactions.(sagaStore)}
	var err error
	e.box, err = outbox.New[*sql.Tx](e.store, outbox.Config{Source: "shop"})
	clitest.Must(t, err)
	quiet := slog.New(slog.DiscardHandler)
	s, err := saga.New[*sql.Tx](e.store, e.box, saga.Config{Name: "shop", Logger: quiet})
	clitest.Must(t, err)
	e.orders, err = saga.Register(s, e.fulfilment(1))
	clitest.Must(t, err)
	_, err = saga.Register(s, e.fulfilment(2))
	clitest.Must(t, err)
	r, err := relay.New(e.store, relay.Config{Name: "engine", Topics: append(s.Topics(), s.Topic()), Logger: quiet})
	clitest.Must(t, err)
	clitest.Must(t, s.Relay(r))
	runs(t, r.Run)
	e.until("the definitions are reported", func() bool {
		reported, err := e.store.SagaDefinitions(t.Context())
		clitest.Must(t, err)
		return len(reported) == 2
	})
	return e
}

// runs runs something until the test ends.
func runs(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		clitest.Must(t, <-done)
	})
}

func (e *engine) until(what string, condition func() bool) {
	e.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); !condition(); <-tick.C {
		if time.Since(begun) > patience {
			e.t.Fatalf("waited for: %s", what)
		}
	}
}

// begin starts an instance that waits at a step, and returns its ID.
func (e *engine) begin(step string) string {
	e.t.Helper()
	id := "order-" + strings.ToLower(rand.Text()[:8])
	_, err := e.box.InTx(e.t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := e.orders.Start(ctx, tx, order{At: step}, saga.ID(id))
		return err
	})
	clitest.Must(e.t, err)
	want := saga.Running
	if e.broken.Load() {
		want = saga.Stuck
	}
	e.is(id, want)
	return id
}

// is waits for a status of an instance that waits for something.
func (e *engine) is(id string, want saga.Status) {
	e.t.Helper()
	e.until("instance "+id+" is "+string(want), func() bool {
		r, err := e.orders.Get(e.t.Context(), id)
		clitest.Must(e.t, err)
		return r.Status == want && (want == saga.Stuck || len(r.Waiting) > 0)
	})
}

// graphs writes the graphs of all definitions.
func (e *engine) graphs(dir string) {
	e.t.Helper()
	var all []byte
	for _, version := range []int{1, 2} {
		graph, _, err := e.fulfilment(version).Graph()
		clitest.Must(e.t, err)
		all = append(all, graph...)
	}
	clitest.Must(e.t, os.WriteFile(filepath.Join(dir, "sagas.json"), all, 0o600))
}
