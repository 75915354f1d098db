package postrider

import "context"

// Propagator carries values of a context, such as the current trace, through message headers. An outbox injects them when
// it publishes; a relay extracts them before it calls a handler.
type Propagator interface {
	// Inject writes headers for the values in ctx. It replaces headers that already exist.
	Inject(ctx context.Context, headers map[string]string)
	// Extract returns ctx with the values from headers. It must not change headers, which may be nil.
	Extract(ctx context.Context, headers map[string]string) context.Context
}

type messageKey struct{}

// ContextWithMessage returns a context that names the message being handled. A relay passes it to handlers, so that the
// messages they publish take over correlation, causation and tenant.
func ContextWithMessage(ctx context.Context, m *Message) context.Context {
	return context.WithValue(ctx, messageKey{}, m)
}

// MessageFromContext returns the message being handled, or nil.
func MessageFromContext(ctx context.Context) *Message {
	m, _ := ctx.Value(messageKey{}).(*Message)
	return m
}

type maxAttemptsKey struct{}

// ContextWithMaxAttempts returns a context that says after how many attempts the message being handled is dead-lettered. Relays
// and consumers pass it to handlers.
func ContextWithMaxAttempts(ctx context.Context, n int) context.Context {
	return context.WithValue(ctx, maxAttemptsKey{}, n)
}

// MaxAttemptsFromContext returns after how many attempts the message being handled is dead-lettered, 0 if that is not known.
// On the last attempt, Message.Attempt is equal to it.
func MaxAttemptsFromContext(ctx context.Context) int {
	n, _ := ctx.Value(maxAttemptsKey{}).(int)
	return n
}
