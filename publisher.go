package postrider

import (
	"context"
	"time"
)

// Publisher hands messages to a broker. Implementations are safe for concurrent use.
type Publisher interface {
	// Publish sends a batch and returns when the broker has answered for every message. The result is nil when all were
	// accepted, otherwise one entry per message, nil for an accepted one.
	//
	// Within one call, the messages of a key are accepted in order, or the first failed one and every later message of
	// its key report an error. (A later message that the broker accepted although an earlier one failed reports an error
	// too: it is delivered again, after the earlier one.)
	//
	// The relay treats errors as follows:
	//
	//   - Unavailable: the whole broker cannot be reached. The relay stops sending, counts no attempt and probes until
	//     the broker is back. Return it when no connection can be made, the broker refuses the credentials, or nothing is
	//     answered in time.
	//   - errors.Is(err, context.Canceled) after ctx ended: never counts as an attempt.
	//   - context.DeadlineExceeded: does not count as an attempt when no message of the call got an answer, nor any other
	//     call meanwhile.
	//   - Any other error belongs to its message and counts as an attempt, however many messages fail; Dead, Discard,
	//     Retry and Snooze apply.
	Publish(ctx context.Context, msgs []*Message) []error
	// Capabilities returns the publisher's guarantees. They do not change during the publisher's lifetime.
	Capabilities() Capabilities
}

// Capabilities lists a publisher's guarantees. A relay refuses to start if they are less than it needs.
type Capabilities struct {
	// Ordered: messages of one key arrive in the order in which they were accepted.
	Ordered bool
	// MaxBatch is the largest number of messages per Publish call; 0 means that the publisher sets no limit.
	MaxBatch int
	// MaxMessageBytes is the largest message (Message.Size) that the broker accepts; 0 means unknown.
	MaxMessageBytes int
	// DedupeWindow is how long the broker drops duplicates by message ID; 0 means that it does not.
	DedupeWindow time.Duration
}

// RiskReader is implemented by publishers that can say how their broker may lose messages that it has accepted.
type RiskReader interface {
	// Risks asks the broker for its settings, and changes nothing. Each risk says what can be lost, and after a semicolon what to do.
	Risks(ctx context.Context) ([]string, error)
}

// Handler handles one message in this process. A nil error means delivered; see Retry, Snooze, Dead, Discard and Unavailable
// for the other outcomes. Any other error is retried with backoff.
type Handler func(ctx context.Context, m *Message) error
