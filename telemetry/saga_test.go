package telemetry_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
	"github.com/postrider/postrider/telemetry"
)

type order struct {
	ID string `json:"id"`
}

var (
	reserve = saga.DefineStep[order, order]("stock.reserve").WithTopic("sagas")
	charge  = saga.DefineStep[order, order]("card.charge").WithTopic("sagas")
)

// startSagas runs an engine with the saga "fulfilment", whose participant refuses the order "refused", and cannot undo what it did for the
// order "stuck".
func startSagas(t *testing.T, s *memory.Store, observer *observe.Saga) (start func(id string)) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	box, err := outbox.New(s, outbox.Config{Source: "shop"})
	must(t, err)
	engine, err := saga.New(s, box, saga.Config{Name: "shop", Observer: observer, Logger: quiet, UndoAttempts: 1, BackoffBase: time.Millisecond})
	must(t, err)
	pass := func(o order) order { return o }
	orders, err := saga.Register(engine, saga.Definition[order]{Name: "fulfilment", Version: 1, Steps: []saga.Step[order]{
		saga.Request[order, order, order]{Name: "reserve", Step: reserve, Command: pass},
		saga.Request[order, order, order]{Name: "charge", Step: charge, Command: pass},
	}})
	must(t, err)
	shop, err := saga.NewParticipant(s, box, saga.ParticipantConfig{Name: "shop", Logger: quiet})
	must(t, err)
	must(t, saga.Handle(shop, reserve, func(_ context.Context, _ *memory.Tx, m postrider.Typed[order]) (order, error) { return m.Data, nil },
		func(_ context.Context, _ *memory.Tx, o, _ order) error {
			if o.ID == "stuck" {
				return saga.ErrCannotUndo
			}
			return nil
		}))
	must(t, saga.Handle(shop, charge, func(_ context.Context, _ *memory.Tx, m postrider.Typed[order]) (order, error) {
		if m.Data.ID != "paid" {
			return order{}, saga.Refuse("limit", errors.New("too much"))
		}
		return m.Data, nil
	}, func(context.Context, *memory.Tx, order, order) error { return nil }))
	r, err := relay.New(s, relay.Config{Name: "sagas", Topics: []string{engine.Topic(), "sagas"}, Logger: quiet})
	must(t, err)
	must(t, engine.Relay(r))
	must(t, shop.Relay(r))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return func(id string) {
		t.Helper()
		_, err := box.InTx(t.Context(), func(ctx context.Context, tx *memory.Tx) error {
			_, err := orders.Start(ctx, tx, order{id}, saga.ID(id))
			return err
		})
		must(t, err)
	}
}

// TestSagas: what an engine does is counted, and what a store has of sagas is exported.
func TestSagas(t *testing.T) {
	t.Parallel()
	w, s := newWorld(t, telemetry.Config{}), memory.New(memory.Config{})
	defer w.WatchStore(telemetry.StoreOf{Name: "main", Store: s, Every: time.Millisecond})()
	start := startSagas(t, s, w.Saga("main"))
	for _, id := range []string{"paid", "refused", "stuck"} {
		start(id)
	}
	await := func(series, want string) {
		t.Helper()
		for deadline := time.Now().Add(3 * time.Minute); w.value(series) != want; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				lines := slices.DeleteFunc(w.scrape(), func(l string) bool { return !strings.HasPrefix(l, "postrider_saga") })
				t.Fatalf("%s is %q, want %q:\n%s", series, w.value(series), want, strings.Join(lines, "\n"))
			}
		}
	}
	await(`postrider_saga_ended_total{cause="",kind="orchestrated",saga="fulfilment",status="completed",store="main",version="1"}`, "1")
	await(`postrider_saga_ended_total{cause="refused",kind="orchestrated",saga="fulfilment",status="compensated",store="main",version="1"}`, "1")
	await(`postrider_saga_stuck{direction="back",saga="fulfilment",store="main"}`, "1")
	for series, want := range map[string]string{
		`postrider_saga_started_total{kind="orchestrated",saga="fulfilment",store="main",version="1"}`:                   "3",
		`postrider_saga_steps_total{outcome="done",saga="fulfilment",step="reserve",store="main"}`:                       "3",
		`postrider_saga_steps_total{outcome="refused",saga="fulfilment",step="charge",store="main"}`:                     "2",
		`postrider_saga_steps_total{outcome="undone",saga="fulfilment",step="reserve",store="main"}`:                     "1",
		`postrider_saga_attempts_total{direction="forward",saga="fulfilment",step="charge",store="main"}`:                "3",
		`postrider_saga_attempts_total{direction="back",saga="fulfilment",step="reserve",store="main"}`:                  "2",
		`postrider_saga_timed_out_total{saga="fulfilment",step="deadline",store="main"}`:                                 "0",
		`postrider_saga_late_effect_total{saga="fulfilment",store="main"}`:                                               "0",
		`postrider_saga_duration_seconds_count{kind="orchestrated",saga="fulfilment",status="compensated",store="main"}`: "1",
		`postrider_saga_active{direction="back",saga="fulfilment",status="stuck",store="main",version="1"}`:              "1",
		`postrider_saga_stuck{direction="forward",saga="fulfilment",store="main"}`:                                       "0",
		`postrider_saga_definition_missing{saga="fulfilment",store="main",version="1"}`:                                  "0",
	} {
		w.wantValue(series, want)
	}
	o := w.Saga("main")
	o.Ignored("elsewhere")
	w.wantValue(`postrider_saga_ignored_total{engine="elsewhere",store="main"}`, "1")
	o.Transitioned(observe.Transitioned{
		SagaIdentity: store.SagaIdentity{Saga: "fulfilment"}, SagaCondition: store.SagaCondition{Status: store.SagaCompensating},
		Entries: []store.SagaEntry{{Name: "late.effect", Step: "charge"}, {Name: "late", Step: "charge#2", Text: "done: the step is undone"}, {Name: "timed out", Step: "charge"}, {Name: "turned back", Text: "timed out"}},
	})
	w.wantValue(`postrider_saga_late_effect_total{saga="fulfilment",store="main"}`, "1")
	w.wantValue(`postrider_saga_steps_total{outcome="late",saga="fulfilment",step="charge",store="main"}`, "1")
	w.wantValue(`postrider_saga_timed_out_total{saga="fulfilment",step="charge",store="main"}`, "1")
	w.wantValue(`postrider_saga_timed_out_total{saga="fulfilment",step="deadline",store="main"}`, "1")
}
