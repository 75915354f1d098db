package observe

import (
	"context"
	"time"

	"github.com/postrider/postrider"
)

// Consumer is told what a consumer does (inbox.ConsumerConfig.Observer).
type Consumer struct {
	// Processing is called before a transaction for messages from the broker, which gets the context that it returns. Processed
	// is called with that context afterwards.
	Processing func(ctx context.Context, msgs []*postrider.Message) context.Context
	Processed  func(ctx context.Context, p Processed)
	// Parked is told about the work on parked messages.
	Parked *Relay
}

// Processed is the result of a transaction for messages from the broker.
type Processed struct {
	Took time.Duration
	// Err says why nothing was committed; Results then is empty.
	Err     error
	Results []Result
}

// Result is what became of a message.
type Result struct {
	Message *postrider.Message
	Outcome Outcome
	// Reason says why it was dead-lettered or discarded.
	Reason string
}

// Outcome is what became of a message from the broker.
type Outcome string

// The outcomes of a message from the broker.
const (
	Applied      Outcome = "applied"
	Duplicate    Outcome = "duplicate"
	Skipped      Outcome = "skipped"
	Parked       Outcome = "parked"
	DeadLettered Outcome = "dead"
	Discarded    Outcome = "discarded" // its dead letter is on record only
)
