package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/observe"
)

// Config configures an outbox. The zero value of each field means its default.
type Config struct {
	// Source names the publishing service, e.g. "orders" or "https://shop.example/orders": a URI-reference of 1 to 256
	// bytes. It applies to messages without a Source of their own. Required.
	Source string
	// MaxPayload is the largest payload in bytes, up to 64 MiB. Default: 1 MiB. Brokers have limits of their own: NATS
	// takes 1 MiB unless configured otherwise, headers included.
	MaxPayload int
	// Hooks are called in this order when messages are published. Default: none.
	Hooks []Hooks
	// Propagator writes values of the context, such as the current trace, into the headers. Default: none.
	Propagator postrider.Propagator
	// Observer is told about calls of Publish, for metrics and traces. Default: none.
	Observer *observe.Outbox
	// Logger receives the errors of AfterCommit and AfterRollback hooks. Default: slog.Default().
	Logger *slog.Logger
}

// Hooks extend publishing. Any of them may be nil. They are called in the goroutine that publishes, and may publish
// messages themselves.
type Hooks struct {
	// BeforePublish is called for each message and may change it; defaults are filled in, and the headers are a copy.
	// Fields that it empties get their defaults again. The rules for messages are checked afterwards. ErrSuppress leaves
	// this message unpublished; any other error fails Publish, so that nothing is published.
	BeforePublish func(ctx context.Context, m *postrider.Message) error
	// AfterCommit is called when InTx has committed, or when the function that Track returned says so, with the messages published
	// in the transaction, in order, except those whose savepoint was rolled back. Its context does not end with the caller's. An
	// error or panic is logged and has no other effect.
	AfterCommit func(ctx context.Context, msgs []*postrider.Message) error
	// AfterRollback is called when InTx or a transaction of Track has rolled back, or when its commit failed, which can leave open
	// whether the transaction took effect. It gets the messages published in the transaction, and the cause. Otherwise it is like
	// AfterCommit.
	AfterRollback func(ctx context.Context, msgs []*postrider.Message, cause error) error
}

// maxMaxPayload keeps messages small enough for a relay to hold many of them in memory.
const maxMaxPayload = 64 << 20

func (c Config) validate(noStore bool) error {
	var faults []error
	if noStore {
		faults = append(faults, errors.New("outbox: no store"))
	}
	if err := postrider.ValidateSource(c.Source); err != nil {
		faults = append(faults, fmt.Errorf("outbox: Source names the service that publishes, e.g. \"orders\": %w", err))
	}
	if c.MaxPayload < 0 || c.MaxPayload > maxMaxPayload {
		faults = append(faults, fmt.Errorf("outbox: MaxPayload is %d bytes, it must be from 1 to %d (0 means %d)",
			c.MaxPayload, maxMaxPayload, postrider.DefaultMaxPayload))
	}
	return errors.Join(faults...)
}
