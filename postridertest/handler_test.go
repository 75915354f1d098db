package postridertest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/postridertest"
	"github.com/postrider/postrider/relay"
)

// handling returns a Handler whose handler returns what returns holds.
func handling(t testing.TB, returns *error) *postridertest.Handler[orderPlaced] {
	return postridertest.NewHandler(t, placed, func(context.Context, postrider.Typed[orderPlaced]) error { return *returns })
}

func TestHandlerOutcomes(t *testing.T) {
	t.Parallel()
	cause := errors.New("no stock")
	for name, c := range map[string]struct {
		err    error
		kind   postrider.OutcomeKind
		reason string
	}{
		"nil":         {nil, postrider.Delivered, ""},
		"error":       {cause, postrider.Retried, ""},
		"retry":       {postrider.Retry(time.Minute, cause), postrider.Retried, ""},
		"snooze":      {postrider.Snooze(time.Hour), postrider.Snoozed, ""},
		"dead":        {postrider.Dead("unknown order", cause), postrider.DeadLettered, "unknown order"},
		"discard":     {postrider.Discard("test order", nil), postrider.Discarded, "test order"},
		"unavailable": {postrider.Unavailable(cause), postrider.BrokerUnavailable, ""},
	} {
		got := handling(t, &c.err).Handle(t.Context(), orderPlaced{OrderID: "42"})
		if got.Kind != c.kind || got.Reason != c.reason || got.Attempt != 1 {
			t.Errorf("%s: %s, want %s %s", name, got, c.kind, c.reason)
		}
	}
}

// TestHandlerCountsAttempts: retries count, snoozes do not, the last attempt is followed by the dead letter, and a duplicate has the
// number of the attempt that it repeats.
func TestHandlerCountsAttempts(t *testing.T) {
	t.Parallel()
	err := errors.New("no stock")
	h := handling(t, &err).WithMaxAttempts(3)
	check := func(got postridertest.Outcome, kind postrider.OutcomeKind, attempt int) {
		t.Helper()
		if got.Kind != kind || got.Attempt != attempt || got.Message.Attempt != attempt {
			t.Errorf("%s, want attempt %d: %s", got, attempt, kind)
		}
	}
	check(h.Handle(t.Context(), orderPlaced{}), postrider.Retried, 1)
	err = postrider.Snooze(time.Minute)
	check(h.Again(t.Context()), postrider.Snoozed, 2)
	err = errors.New("no stock")
	check(h.Again(t.Context()), postrider.Retried, 2)
	last := h.Again(t.Context())
	check(last, postrider.DeadLettered, 3)
	if last.Reason != relay.AttemptsExhausted {
		t.Errorf("reason %q, want %q", last.Reason, relay.AttemptsExhausted)
	}
	err = nil
	check(h.Handle(t.Context(), orderPlaced{}), postrider.Delivered, 1)
	first := h.Again(t.Context())
	check(first, postrider.Delivered, 1)
	if again := h.Again(t.Context()); again.Message.ID != first.Message.ID {
		t.Errorf("a duplicate has the ID %s, want %s", again.Message.ID, first.Message.ID)
	}
}

// TestHandlerContext: the handler finds message, number of attempts and deadline in its context.
func TestHandlerContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := postridertest.NewHandler(t, placed, func(ctx context.Context, m postrider.Typed[orderPlaced]) error {
			if postrider.MessageFromContext(ctx) != m.Message || postrider.MaxAttemptsFromContext(ctx) != relay.DefaultMaxAttempts {
				t.Errorf("the context does not have the message or the number of attempts")
			}
			if m.Tenant != "acme" || m.Key != "order/42" || m.Source == "" || m.CreatedAt.IsZero() {
				t.Errorf("the message is %+v", m.Message)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}).WithTimeout(time.Minute)
		m, err := placed.New(orderPlaced{OrderID: "42"})
		if err != nil {
			t.Fatal(err)
		}
		m.Tenant = "acme"
		began := time.Now()
		got := h.HandleMessage(t.Context(), m)
		if got.Kind != postrider.Retried || !errors.Is(got.Err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("%s after %s, want a retry after a minute", got, time.Since(began))
		}
	})
}

func TestHandlerBadMessages(t *testing.T) {
	t.Parallel()
	h := postridertest.NewHandler(t, placed, func(context.Context, postrider.Typed[orderPlaced]) error { panic("broken") })
	got := h.Handle(t.Context(), orderPlaced{})
	if _, ok := errors.AsType[*relay.PanicError](got.Err); !ok || got.Kind != postrider.Retried {
		t.Errorf("a panic: %s, want a retry", got)
	}
	got = h.HandleMessage(t.Context(), &postrider.Message{Type: "order.placed", Payload: []byte("no JSON")})
	if got.Kind != postrider.DeadLettered || got.Reason != postrider.Undecodable {
		t.Errorf("no JSON: %s, want a dead letter", got)
	}
	got = h.WithMaxAttempts(1).HandleMessage(t.Context(), &postrider.Message{Type: "order.placed", SchemaVersion: 2, Payload: []byte("{}")})
	if got.Kind != postrider.Retried || !errors.Is(got.Err, postrider.ErrUnhandled) {
		t.Errorf("a newer version: %s, want it to wait for a handler", got)
	}
	if failure(func(t testing.TB) { handling(t, new(error)).Again(context.Background()) }) == "" {
		t.Error("Again before Handle did not fail")
	}
}
