package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store/memory"
)

type order struct {
	ID string `json:"id"`
}

// The steps of the sagas, each of a participant that a relay of the topic runs.
var (
	reserve = saga.DefineStep[order, order]("stock.reserve").WithTopic("stock")
	charge  = saga.DefineStep[order, order]("card.charge").WithTopic("stock")
	move    = saga.DefineStep[order, order]("bank.move").WithTopic("bank")
	load    = saga.DefineStep[order, order]("dock.load").WithTopic("dock")
)

// sagas are an engine with the sagas "fulfilment" and "transfer", one of an older program with "legacy", and the participants.
type sagas struct {
	s                    *System
	engine               *saga.Engine[*memory.Tx]
	fulfilment           *saga.Saga[*memory.Tx, order]
	transfer, shipment   *saga.Saga[*memory.Tx, order]
	refusing, cannotUndo atomic.Bool
	abandoned            atomic.Bool
	stopBank, stopLegacy func()
	startEngine          func() (stop func())
	stopEngine, steady   func()
}

func newSagas(s *System) *sagas {
	g := &sagas{s: s}
	var err error
	g.engine, err = saga.New(s.main.store, s.outbox, saga.Config{
		Name: "shop", Observer: s.Telemetry.Saga(mainStore), Logger: s.Logger, UndoAttempts: 1, UndoTimeout: 24 * time.Hour, BackoffBase: time.Millisecond,
	})
	must(s.tb, err)
	g.fulfilment = register(s.tb, g.engine, "fulfilment", request("reserve", reserve, 24*time.Hour), request("charge", charge, 24*time.Hour))
	g.transfer = register(s.tb, g.engine, "transfer", request("move", move, 2*time.Second))
	g.shipment = register(s.tb, g.engine, "shipment", request("load", load, 24*time.Hour))
	participant := g.participant("stock")
	must(s.tb, saga.Handle(participant, reserve, done, func(_ context.Context, _ *memory.Tx, o, _ order) error {
		if o.ID == "stuck" && g.cannotUndo.Load() {
			return saga.ErrCannotUndo
		}
		return nil
	}))
	must(s.tb, saga.Handle(participant, charge, func(_ context.Context, _ *memory.Tx, m postrider.Typed[order]) (order, error) {
		if g.refusing.Load() || m.Data.ID == "stuck" {
			return order{}, saga.Refuse("limit", errors.New("too much"))
		}
		return m.Data, nil
	}, undone))
	g.startEngine = func() func() {
		return g.relay("sagas", []string{g.engine.Topic(), "stock"}, g.engine.Relay, participant.Relay)
	}
	g.stopEngine = g.startEngine()
	g.startBank()
	g.startLegacy()
	g.startDock()
	s.run(func(ctx context.Context) error {
		for n := 0; ctx.Err() == nil; n++ {
			g.begin(g.fulfilment, fmt.Sprint("order", n))
			g.begin(g.transfer, fmt.Sprint("transfer", n))
			sleep(ctx, s.Rest)
		}
		return nil
	})
	return g
}

func request(name string, step saga.StepDefinition[order, order], timeout time.Duration) saga.Step[order] {
	return saga.Request[order, order, order]{Name: name, Step: step, Command: func(o order) order { return o }, Timeout: timeout}
}

func register(tb TB, e *saga.Engine[*memory.Tx], name string, steps ...saga.Step[order]) *saga.Saga[*memory.Tx, order] {
	tb.Helper()
	s, err := saga.Register(e, saga.Definition[order]{Name: name, Version: 1, Steps: steps})
	must(tb, err)
	return s
}

func done(_ context.Context, _ *memory.Tx, m postrider.Typed[order]) (order, error) {
	return m.Data, nil
}

func undone(context.Context, *memory.Tx, order, order) error { return nil }

func (g *sagas) participant(name string) *saga.Participant[*memory.Tx] {
	p, err := saga.NewParticipant(g.s.main.store, g.s.outbox, saga.ParticipantConfig{Name: name, Logger: g.s.Logger})
	must(g.s.tb, err)
	return p
}

// relay runs a relay with what is added to it.
func (g *sagas) relay(name string, topics []string, add ...func(*relay.Relay) error) (stop func()) {
	r, err := relay.New(g.s.main.store, relay.Config{Name: name, Topics: topics, KeepDelivered: keepDelivered, Logger: g.s.Logger})
	must(g.s.tb, err)
	for _, f := range add {
		must(g.s.tb, f(r))
	}
	return g.s.run(r.Run)
}

func (g *sagas) startBank() {
	bank := g.participant("bank")
	must(g.s.tb, saga.Handle(bank, move, done, undone))
	g.stopBank = g.relay("bank", []string{"bank"}, bank.Relay)
}

// startLegacy starts the only program with the saga "legacy", of which one instance is active.
func (g *sagas) startLegacy() {
	engine, err := saga.New(g.s.main.store, g.s.outbox, saga.Config{Name: "legacy", Observer: g.s.Telemetry.Saga(mainStore), Logger: g.s.Logger})
	must(g.s.tb, err)
	legacy := register(g.s.tb, engine, "legacy", request("wait", saga.DefineStep[order, order]("wait").WithTopic("legacy"), 24*time.Hour))
	g.stopLegacy = g.relay("legacy", []string{engine.Topic(), "legacy"}, engine.Relay)
	g.begin(legacy, "legacy")
}

// begin starts an instance, unless it exists.
func (g *sagas) begin(of *saga.Saga[*memory.Tx, order], id string) {
	g.s.transact(func(ctx context.Context, tx *memory.Tx) error {
		_, err := of.Start(ctx, tx, order{id}, saga.ID(id))
		return err
	})
}

// operate asks for an operation on an instance, as postrider saga does.
func (g *sagas) operate(id string, verb saga.Verb) {
	g.s.transact(func(ctx context.Context, tx *memory.Tx) error {
		_, err := g.engine.Operate(ctx, tx, id, saga.Operation{Verb: verb, Actor: operator, Reason: reason})
		return err
	})
}

func (g *sagas) faults() []Fault {
	return []Fault{
		{
			Name: "payments are refused", Alerts: []Alert{{"PostriderSagaSuccessLow", "saga", "fulfilment"}},
			Provoke: func() { g.refusing.Store(true) }, Fix: func() { g.refusing.Store(false) },
		},
		{
			Name: "step cannot be undone", Alerts: []Alert{{"PostriderSagaStuck", "saga", "fulfilment"}},
			Provoke: func() { g.cannotUndo.Store(true); g.begin(g.fulfilment, "stuck") },
			Fix:     func() { g.cannotUndo.Store(false); g.operate("stuck", saga.Retry) },
		},
		{
			Name: "participant is down", Alerts: []Alert{
				{"PostriderSagaTimeOuts", "saga", "transfer"}, {"PostriderSagaTimeOutsExceedCompletions", "saga", "transfer"},
				{"PostriderSagaCompensationSlow", "saga", "transfer"},
			},
			Provoke: g.stopBank, Fix: g.startBank,
		},
		{
			Name: "release is gone", Alerts: []Alert{{"PostriderSagaDefinitionMissing", "saga", "legacy"}},
			Provoke: g.stopLegacy, Fix: g.startLegacy,
		},
		{
			Name: "message for another database", Alerts: []Alert{{"PostriderSagaNotFound", "engine", "shop"}},
			Provoke: func() { g.operate("elsewhere", saga.Retry) },
		},
		{
			Name: "participant comes late", Alerts: []Alert{{"PostriderSagaLateEffect", "saga", "shipment"}}, Provoke: g.abandon,
		},
		{
			Name: "engine stops and starts", Alerts: []Alert{{"PostriderSagaTimerLag", "saga", "transfer"}},
			Provoke: func() { g.steady = g.stopAndStart() }, Fix: func() { g.steady() },
		},
	}
}

// startDock starts an instance whose participant does its step only after the instance was abandoned.
func (g *sagas) startDock() {
	dock := g.participant("dock")
	must(g.s.tb, saga.Handle(dock, load, func(ctx context.Context, tx *memory.Tx, m postrider.Typed[order]) (order, error) {
		if !g.abandoned.Load() {
			return order{}, postrider.Snooze(time.Second)
		}
		return done(ctx, tx, m)
	}, undone))
	g.relay("dock", []string{"dock"}, dock.Relay)
	g.begin(g.shipment, "late")
}

// stopAndStart stops the process of the engine, and starts it again for a quarter of the time, until the returned function is called.
func (g *sagas) stopAndStart() (steady func()) {
	return g.s.run(func(ctx context.Context) error {
		for ctx.Err() == nil {
			g.stopEngine()
			sleep(ctx, 45*time.Second)
			g.stopEngine = g.startEngine()
			sleep(ctx, 15*time.Second)
		}
		return nil
	})
}

// abandon abandons the instance before its participant does the step.
func (g *sagas) abandon() {
	g.operate("late", saga.Abandon)
	ctx := g.s.tb.Context()
	for {
		in, err := g.engine.Get(ctx, "late")
		must(g.s.tb, err)
		if in.Status == saga.Abandoned {
			break
		}
		sleep(ctx, 50*time.Millisecond)
	}
	g.abandoned.Store(true)
}
