package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/resilience"
	"github.com/postrider/postrider/saga"
	memorystore "github.com/postrider/postrider/store/memory"
)

// payment is the data of a saga that charges a card, its command and its reply.
type payment struct{ ID string }

// payments is a saga whose only step charges a card by a service behind a breaker, as a call over the network.
type payments struct {
	box    *outbox.Outbox[*memorystore.Tx]
	saga   *saga.Saga[*memorystore.Tx, payment]
	calls  int
	answer error // of the service
}

func newPayments(t *testing.T, o *resilience.Operation) *payments {
	t.Helper()
	s, quiet := memorystore.New(memorystore.Config{}), slog.New(slog.DiscardHandler)
	box, err := outbox.New(s, outbox.Config{Source: "shop"})
	must(t, err)
	w := &payments{box: box}
	charge := saga.DefineStep[payment, payment]("card.charge").WithTopic("payments")
	p, err := saga.NewParticipant(saga.Records[*memorystore.Tx](s), box, saga.ParticipantConfig{Name: "payments", Logger: quiet})
	must(t, err)
	must(t, saga.HandleCall(p, charge,
		func(ctx context.Context, _ string, m postrider.Typed[payment]) (payment, error) {
			return m.Data, o.Run(ctx, func(context.Context) error {
				w.calls++
				return w.answer
			})
		},
		func(context.Context, string, payment, payment) error { return errors.New("nothing was charged") }))
	e, err := saga.New(saga.Store[*memorystore.Tx](s), box, saga.Config{Name: "shop", Logger: quiet, StepTimeout: time.Hour})
	must(t, err)
	w.saga, err = saga.Register(e, saga.Definition[payment]{Name: "pay", Version: 1, Steps: []saga.Step[payment]{
		saga.Request[payment, payment, payment]{Name: "charge", Step: charge, Command: func(d payment) payment { return d }},
	}})
	must(t, err)
	engine, err := relay.New(s, relay.Config{Name: "engine", Topics: []string{e.Topic()}, Logger: quiet})
	must(t, err)
	must(t, e.Relay(engine))
	calls, err := relay.New(s, relay.Config{Name: "calls", Topics: []string{charge.Topic()}, Logger: quiet})
	must(t, err)
	must(t, p.Calls(calls))
	run(t, engine.Run)
	run(t, calls.Run)
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestRefusedStepsDoNotCount: a hundred cards are declined in a row. Each saga ends with the refusal after one call, and the breaker of the
// service has counted nothing. As failures, they open it.
func TestRefusedStepsDoNotCount(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := newSet(t, resilience.Config{}).Operation("payments")
		w := newPayments(t, o)
		w.answer = saga.Refuse("card.declined", errors.New("the limit is 10,000"))
		const declined = 100
		for i := range declined {
			id := fmt.Sprint(i)
			_, err := w.box.InTx(t.Context(), func(ctx context.Context, tx *memorystore.Tx) error {
				_, err := w.saga.Start(ctx, tx, payment{id}, saga.ID(id))
				return err
			})
			must(t, err)
			r, err := w.saga.Wait(t.Context(), id)
			must(t, err)
			if r.Status != saga.Compensated || r.Cause == nil || r.Cause.Kind != saga.CauseRefused || r.Cause.Reason != "card.declined" {
				t.Fatalf("saga %s is %s, because of %+v, after %d calls", id, r.Status, r.Cause, w.calls)
			}
		}
		if s := o.State(); w.calls != declined || isOpen(o) || s.Failures != 0 {
			t.Errorf("after %d calls for %d refusals: %+v", w.calls, declined, s)
		}
		if end(t, o, 20, errDown); !isOpen(o) {
			t.Error("twenty failures leave the breaker closed")
		}
	})
}
