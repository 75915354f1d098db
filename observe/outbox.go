package observe

import (
	"context"
	"time"

	"github.com/postrider/postrider"
)

// Outbox is told about publishing (outbox.Config.Observer), in the goroutine that publishes. Unlike outbox.Hooks, it cannot prevent
// anything.
type Outbox struct {
	// Publishing is called before a call of Publish, or before each chunk of PublishSeq, which continues with the context that it
	// returns: the Propagator reads that. Published is called with it afterwards.
	Publishing func(ctx context.Context, msgs []*postrider.Message) context.Context
	Published  func(ctx context.Context, p Published)
}

// Published is the result of a call.
type Published struct {
	// Messages were written in the transaction, which may still be rolled back. If Err is not nil, they were not.
	Messages []*postrider.Message
	Took     time.Duration
	Err      error
}
