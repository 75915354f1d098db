package saga

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga/internal/machine"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// failing is a store in which instances cannot be loaded until a time.
type failing struct {
	*memory.Store
	until time.Time
}

func (f *failing) LoadSagas(ctx context.Context, tx *memory.Tx, runs []string) ([]store.SagaInstance, error) {
	if time.Now().Before(f.until) {
		return nil, errors.New("the table is locked")
	}
	return f.Store.LoadSagas(ctx, tx, runs)
}

type keyed struct{ Key string }

var quiet = slog.New(slog.DiscardHandler)

// TestTimersAreNotLost: a timer whose command the outbox refuses leaves a step that is stuck, and one that meets a database that
// fails for hours happens afterwards.
func TestTimersAreNotLost(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		key    string
		outage time.Duration
		want   Status
	}{
		"a key that is too long":         {strings.Repeat("k", 5000), 0, Stuck},
		"the database fails for an hour": {"k", time.Hour, Compensated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { timerIsNotLost(t, tt.key, tt.outage, tt.want) })
		})
	}
}

func timerIsNotLost(t *testing.T, key string, outage time.Duration, want Status) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s := &failing{Store: memory.New(memory.Config{})}
	box, err := outbox.New(s.Store, outbox.Config{Source: "shop"})
	must(err)
	e, err := New[*memory.Tx](s, box, Config{Name: "shop", UndoAttempts: 1, Logger: quiet})
	must(err)
	step := DefineStep[keyed, int]("stock.reserve").WithKey(func(d keyed) string { return d.Key })
	orders, err := Register(e, Definition[keyed]{Name: "orders", Version: 1, Steps: []Step[keyed]{
		Await[keyed, int]{Name: "wait", Signal: postrider.Define[int]("reviewed"), Timeout: time.Minute, TimedOut: func(d *keyed) { d.Key = key }},
		Request[keyed, keyed, int]{Name: "reserve", Step: step, Command: func(d keyed) keyed { return d }},
	}})
	must(err)
	p, err := NewParticipant[*memory.Tx](s.Store, box, ParticipantConfig{Name: "stock"})
	must(err)
	must(Handle(p, step,
		func(context.Context, *memory.Tx, postrider.Typed[keyed]) (int, error) {
			return 0, Refuse("sold out", nil)
		},
		func(context.Context, *memory.Tx, keyed, int) error { return nil }))
	r, err := relay.New(s.Store, relay.Config{Name: "shop", Topics: []string{e.Topic(), "stock.reserve"}, MaxAttempts: 3})
	must(err)
	must(errors.Join(e.Relay(r), p.Relay(r)))
	ctx, cancel := context.WithCancel(t.Context())
	s.until = time.Now().Add(outage)
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	_, err = box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error {
		_, err := orders.Start(ctx, tx, keyed{}, ID("42"))
		return err
	})
	must(err)
	time.Sleep(2 * time.Hour)
	if got, err := orders.Get(ctx, "42"); err != nil || got.Status != want {
		t.Errorf("the instance is %s, waiting for %v (%v); want it %s", got.Status, got.Waiting, err, want)
	}
	cancel()
	must(<-done)
}

// TestNoRecordBlocks: a step that was done by hand is not done again by a command that arrives after its undo.
func TestNoRecordBlocks(t *testing.T) {
	t.Parallel()
	s := memory.New(memory.Config{})
	box, err := outbox.New(s, outbox.Config{Source: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewParticipant[*memory.Tx](s, box, ParticipantConfig{Name: "stock"})
	if err != nil {
		t.Fatal(err)
	}
	done := 0
	if err := Handle(p, DefineStep[int, int]("stock.reserve"),
		func(context.Context, *memory.Tx, postrider.Typed[int]) (int, error) { done++; return 1, nil },
		func(context.Context, *memory.Tx, int, int) error { return nil }); err != nil {
		t.Fatal(err)
	}
	h := p.handlers["stock.reserve"]
	for _, undo := range []bool{true, false, true} {
		m := &postrider.Message{
			ID: postrider.NewID(), Type: "stock.reserve", Topic: "stock", SchemaVersion: 1, Payload: []byte("1"), ContentType: "application/json",
			Headers: map[string]string{
				headerID: "42", headerRun: "run", headerStep: "reserve", headerToken: "token", headerReply: "reply", headerKey: "k",
				headerAttempt: "1", headerSince: time.Now().UTC().Format(time.RFC3339), headerSeen: "1",
			},
		}
		if undo {
			m.Type = machine.UndoType(m.Type)
		}
		if _, err := box.InTx(t.Context(), func(ctx context.Context, tx *memory.Tx) error { return p.handle(ctx, tx, m, h, undo) }); err != nil {
			t.Fatal(err)
		}
		if done != 0 {
			t.Fatalf("the step was done %d times after its undo, want 0", done)
		}
	}
}

// TestOperateRefusesWhatCannotBeStored: at once, instead of in a dead letter.
func TestOperateRefusesWhatCannotBeStored(t *testing.T) {
	t.Parallel()
	e := &Engine[*memory.Tx]{cfg: Config{Name: "shop"}}
	long := strings.Repeat("x", 257)
	for _, o := range []Operation{
		{Actor: "a\x00", Reason: "r"}, {Actor: long, Reason: "r"}, {Actor: "a", Reason: "\xff"}, {Actor: "a", Reason: "r", Step: long},
	} {
		o.Verb = Retry
		if _, err := e.Operate(t.Context(), nil, "42", o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// TestFailuresOfTheDatabaseDoNotCount: a signal that meets a database that fails for longer than its attempts take is applied
// afterwards.
func TestFailuresOfTheDatabaseDoNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		s := &failing{Store: memory.New(memory.Config{})}
		box, err := outbox.New(s.Store, outbox.Config{Source: "shop"})
		must(err)
		e, err := New[*memory.Tx](s, box, Config{Name: "shop", Logger: quiet})
		must(err)
		reviewed := postrider.Define[int]("reviewed")
		orders, err := Register(e, Definition[keyed]{Name: "orders", Version: 1, Steps: []Step[keyed]{
			Await[keyed, int]{Name: "wait", Signal: reviewed, Timeout: NoTimeout}}})
		must(err)
		r, err := relay.New(s.Store, relay.Config{Name: "shop", Topics: []string{e.Topic()}, MaxAttempts: 2})
		must(err)
		must(e.Relay(r))
		_, err = box.InTx(t.Context(), func(ctx context.Context, tx *memory.Tx) error {
			_, err := orders.Start(ctx, tx, keyed{}, ID("42"))
			return errors.Join(err, Signal(ctx, tx, box, "shop", "42", reviewed, 1))
		})
		must(err)
		s.until = time.Now().Add(time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		time.Sleep(2 * time.Hour)
		if got, err := orders.Get(ctx, "42"); err != nil || got.Status != Completed {
			t.Errorf("the instance is %s, waiting for %v (%v); want it completed", got.Status, got.Waiting, err)
		}
		cancel()
		must(<-done)
	})
}

// TestHoldKeyIsRefused: a relay that holds keys after a dead letter would stop the timers of an instance.
func TestHoldKeyIsRefused(t *testing.T) {
	t.Parallel()
	s := memory.New(memory.Config{})
	box, err := outbox.New(s, outbox.Config{Source: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	e, err := New[*memory.Tx](s, box, Config{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := relay.New(s, relay.Config{Name: "shop", Topics: []string{e.Topic()}, OnDead: relay.HoldKey})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Relay(r); !errors.Is(err, ErrHoldKey) {
		t.Errorf("relay with HoldKey: %v, want %v", err, ErrHoldKey)
	}
}

// TestParticipantRemovesRecords: after KeepRecords, while its relay runs.
func TestParticipantRemovesRecords(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{})
		box, err := outbox.New(s, outbox.Config{Source: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		p, err := NewParticipant[*memory.Tx](s, box, ParticipantConfig{Name: "stock", KeepRecords: 48 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		r, err := relay.New(s, relay.Config{Name: "stock", Topics: []string{"stock.reserve"}, PollMax: time.Minute, LeaseTTL: 10 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		step := DefineStep[int, int]("stock.reserve")
		err = Handle(p, step, func(context.Context, *memory.Tx, postrider.Typed[int]) (int, error) { return 1, nil },
			func(context.Context, *memory.Tx, int, int) error { return nil })
		if err := errors.Join(err, p.Relay(r)); err != nil {
			t.Fatal(err)
		}
		records := func() (found bool) {
			_, err := box.InTx(t.Context(), func(ctx context.Context, tx *memory.Tx) error {
				all, _, err := s.LockSagaRecords(ctx, tx, "stock", []store.SagaStep{{Run: "run", Step: "reserve"}})
				found = err == nil && all[0].State == store.SagaStepUndone
				return errors.Join(err, s.SaveSagaRecords(ctx, tx, "stock", all))
			})
			if err != nil {
				t.Fatal(err)
			}
			return found
		}
		_, err = box.InTx(t.Context(), func(ctx context.Context, tx *memory.Tx) error {
			of := []store.SagaStep{{Run: "run", Step: "reserve"}}
			all, _, err := s.LockSagaRecords(ctx, tx, "stock", of)
			all[0].State = store.SagaStepUndone
			return errors.Join(err, s.SaveSagaRecords(ctx, tx, "stock", all))
		})
		if err != nil || !records() {
			t.Fatalf("the record is not there (%v)", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		time.Sleep(49 * time.Hour)
		if records() {
			t.Error("the record is there after KeepRecords")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestAnswersOfInstancesAreNotLost: nothing repeats what instances tell each other, so it waits however it fails. A reply or a verb is an
// attempt.
func TestAnswersOfInstancesAreNotLost(t *testing.T) {
	t.Parallel()
	e := &Engine[*memory.Tx]{cfg: Config{Logger: quiet}}
	for messageType, want := range map[string]postrider.OutcomeKind{
		typeEnded: postrider.Snoozed, typeParent: postrider.Snoozed, typeTimer: postrider.Snoozed, typeReply: postrider.Retried, typeVerb: postrider.Retried,
	} {
		m := &postrider.Message{Type: messageType}
		if got := postrider.OutcomeOf(e.uncounted(m, errors.New("the data cannot be read"))).Kind; got != want {
			t.Errorf("%s that fails is %v, want %v", messageType, got, want)
		}
	}
}

// TestChildDataFitTheOutbox: the data of a child are in the message that tells its end, so the outbox must take them.
func TestChildDataFitTheOutbox(t *testing.T) {
	t.Parallel()
	s := memory.New(memory.Config{})
	box, err := outbox.New(s, outbox.Config{Source: "shop", MaxPayload: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int]bool{1000: true, 1001: false} {
		e, err := New[*memory.Tx](s, box, Config{Name: "shop", MaxState: size})
		if err != nil {
			t.Fatal(err)
		}
		paying := Definition[keyed]{Name: "payment", Version: 1, Steps: []Step[keyed]{asking()}}
		_, err = Register(e, paying)
		if err == nil {
			_, err = Register(e, Definition[keyed]{Name: "order", Version: 1, Steps: []Step[keyed]{
				Child[keyed, keyed]{Name: "pay", Saga: paying, Data: func(k keyed) keyed { return k }},
			}})
		}
		if (err == nil) != want {
			t.Errorf("MaxState %d, and an outbox that takes 1,000 bytes: %v", size, err)
		}
	}
}

// asking is a step that waits for a person.
func asking() Step[keyed] {
	return Ask[keyed]{Name: "review", Question: func(keyed) string { return "?" }, Options: []string{"yes"}, Timeout: NoTimeout}
}
