package postrider

import "context"

// Propagator carries a context's values, such as the current trace, through a message's headers. An outbox injects when
// it publishes, a relay extracts before it calls a handler.
type Propagator interface {
	// Inject writes headers for what ctx carries. A header that is already there is replaced.
	Inject(ctx context.Context, headers map[string]string)
	// Extract returns ctx with what the headers carry. It must not change them; headers may be nil.
	Extract(ctx context.Context, headers map[string]string) context.Context
}

type messageKey struct{}

// ContextWithMessage returns a context that says which message is being handled. A relay gives it to handlers, so that
// what they publish names its correlation, its cause and its tenant by itself.
func ContextWithMessage(ctx context.Context, m *Message) context.Context {
	return context.WithValue(ctx, messageKey{}, m)
}

// MessageFromContext returns the message that is being handled, or nil when none is.
func MessageFromContext(ctx context.Context) *Message {
	m, _ := ctx.Value(messageKey{}).(*Message)
	return m
}
