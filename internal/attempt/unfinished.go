package attempt

import "context"

// UnfinishedError is the error of a message of a Publish call that returns although the message is still being worked on, so that it does
// not hold back the others of the call. The messages after it with its key must have the error of a failed predecessor, or be unfinished
// too.
type UnfinishedError struct {
	// Wait returns the outcome once nobody works on the message any more. When its context has ended, nothing that is done about the
	// message may take effect.
	Wait func(ctx context.Context) error
}

func (*UnfinishedError) Error() string {
	return "the message is still being worked on; its outcome comes later"
}
