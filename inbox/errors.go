package inbox

import "errors"

// Errors of inboxes and consumers.
var (
	// ErrNameTaken: a relay that reads the outbox has the name of the consumer.
	ErrNameTaken = errors.New("a relay that reads the outbox has this name; give the consumer another")
)
