package postrider

import (
	"context"
	"time"
)

// Publisher hands messages to a broker. Implementations are safe for concurrent use.
type Publisher interface {
	// Publish hands over a batch and returns when the broker has answered for every message of it. The result is nil when
	// all were accepted, otherwise one entry per message, nil for an accepted one.
	//
	// Within one call, messages of one key are accepted in order, or the first failed one and every follower of its key
	// report an error. (A follower that the broker accepted although its predecessor failed reports an error too: it is
	// delivered again, behind its predecessor.)
	//
	// An error made by Unavailable says that the broker as a whole cannot be reached: the relay stops sending, counts no
	// attempt and probes until it is back. Any other error belongs to its message and counts as an attempt, however many
	// messages fail; Dead, Retry and Snooze apply. So return Unavailable when no connection can be made, the broker refuses
	// the credentials, or nothing is answered in time. An error for which errors.Is(err, context.Canceled) holds after ctx
	// ended is never counted as an attempt; nor is context.DeadlineExceeded when no message of the call got an answer, nor any
	// other call meanwhile.
	Publish(ctx context.Context, msgs []*Message) []error
	// Capabilities says what the publisher promises. It does not change while the publisher lives.
	Capabilities() Capabilities
}

// Capabilities is what a publisher promises. A relay states what it needs and refuses to start on less.
type Capabilities struct {
	// Ordered: messages of one key arrive in the order in which they were accepted.
	Ordered bool
	// MaxBatch is the largest number of messages for one Publish call; 0 means no limit of the publisher's own.
	MaxBatch int
	// MaxMessageBytes is the largest message (Message.Size) that the broker takes; 0 means unknown.
	MaxMessageBytes int
	// DedupeWindow is how long the broker drops a second message with the same ID; 0 means that it does not.
	DedupeWindow time.Duration
}

// Handler works on one message in this process. A nil error means delivered; see Retry, Snooze, Dead and Unavailable
// for the other outcomes. Any other error is retried with backoff.
type Handler func(ctx context.Context, m *Message) error
