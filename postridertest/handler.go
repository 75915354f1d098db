package postridertest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

// Handler runs a handler as a relay or consumer does, one attempt at a time. It is for one goroutine at a time.
//
// A handler gets the message in its context (postrider.MessageFromContext), with the number of the attempt, and a deadline. A
// message that cannot be decoded is dead-lettered, a panic is a failed attempt, and the last failed attempt dead-letters the message.
type Handler[T any] struct {
	t           testing.TB
	definition  postrider.Definition[T]
	handle      postrider.Handler
	maxAttempts int
	timeout     time.Duration

	message *postrider.Message // of the last attempt
	again   int                // the number of the next attempt
}

// Outcome is the result of an attempt.
type Outcome struct {
	// Outcome says what happens to the message: that of the handler's error, or DeadLettered with the reason
	// relay.AttemptsExhausted after the last attempt.
	postrider.Outcome
	// Attempt is the number of the attempt, from 1.
	Attempt int
	// Message is the message as it was handled.
	Message *postrider.Message
}

// String describes the outcome for messages of tests.
func (o Outcome) String() string {
	text := fmt.Sprintf("attempt %d: %s", o.Attempt, o.Kind)
	if o.After > 0 {
		text += fmt.Sprintf(" after %s", o.After)
	}
	if o.Reason != "" {
		text += ": " + o.Reason
	}
	if o.Err != nil {
		text += ": " + o.Err.Error()
	}
	return text
}

// NewHandler returns a Handler for the messages of a definition, with the defaults of a relay: relay.DefaultMaxAttempts attempts of
// relay.DefaultAttemptTimeout. It ends the test if the definition is not valid. For a handler with a transaction, pass a function
// that begins and ends one around it.
func NewHandler[T any](t testing.TB, d postrider.Definition[T], h func(ctx context.Context, m postrider.Typed[T]) error) *Handler[T] {
	t.Helper()
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	return &Handler[T]{
		t: t, definition: d, handle: d.Handler(h), maxAttempts: relay.DefaultMaxAttempts, timeout: relay.DefaultAttemptTimeout,
	}
}

// WithMaxAttempts sets after how many failed attempts a message is dead-lettered.
func (h *Handler[T]) WithMaxAttempts(n int) *Handler[T] {
	h.maxAttempts = n
	return h
}

// WithTimeout sets the limit of an attempt.
func (h *Handler[T]) WithTimeout(limit time.Duration) *Handler[T] {
	h.timeout = limit
	return h
}

// Handle makes the first attempt of a new message with data.
func (h *Handler[T]) Handle(ctx context.Context, data T) Outcome {
	h.t.Helper()
	m, err := h.definition.New(data)
	if err != nil {
		h.t.Fatal(err)
	}
	return h.HandleMessage(ctx, m)
}

// HandleMessage makes the first attempt of a message, e.g. one with headers or a tenant, or one that cannot be decoded. Defaults are
// filled in as Publish does.
func (h *Handler[T]) HandleMessage(ctx context.Context, m *postrider.Message) Outcome {
	h.t.Helper()
	c := *m
	c.FillDefaults("postridertest", time.Now())
	c.Sequence, c.CreatedAt = 1, time.Now().UTC()
	h.message, h.again = &c, 1
	return h.attempt(ctx)
}

// Again delivers the last message once more: for its next attempt if it was retried or snoozed, otherwise as a duplicate.
func (h *Handler[T]) Again(ctx context.Context) Outcome {
	h.t.Helper()
	if h.message == nil {
		h.t.Fatal("Again repeats a message: call Handle first")
	}
	return h.attempt(ctx)
}

func (h *Handler[T]) attempt(ctx context.Context) Outcome {
	m := *h.message
	m.Attempt = h.again
	o := Outcome{Outcome: postrider.OutcomeOf(h.call(ctx, &m)), Attempt: m.Attempt, Message: &m}
	if o.Kind == postrider.Retried && !errors.Is(o.Err, postrider.ErrUnhandled) {
		if h.again++; o.Attempt >= h.maxAttempts {
			o.Kind, o.After, o.Reason = postrider.DeadLettered, 0, relay.AttemptsExhausted
		}
	}
	return o
}

// call calls the handler with the context that a relay gives it.
func (h *Handler[T]) call(ctx context.Context, m *postrider.Message) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &relay.PanicError{Value: v, Stack: string(debug.Stack())}
		}
	}()
	timedOut := fmt.Errorf("attempt took longer than %s: %w", h.timeout, context.DeadlineExceeded)
	ctx, cancel := context.WithTimeoutCause(ctx, h.timeout, timedOut)
	defer cancel()
	return h.handle(postrider.ContextWithMessage(postrider.ContextWithMaxAttempts(ctx, h.maxAttempts), m), m)
}
