package postrider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
)

// ErrPredecessorFailed marks the error of a follower: nothing is known to be wrong with the message itself, it failed because a
// message before it, with the same key and in the same Publish call, did. It is no attempt of the follower's own.
var ErrPredecessorFailed = errors.New("a message before it with the same key failed")

// PredecessorFailed is the error that a publisher reports for a follower of head, which failed with err. It matches ErrPredecessorFailed, and it
// is Unavailable or a context's error when err is; a dead head does not make its followers dead.
func PredecessorFailed(head *Message, err error) error {
	switch {
	case OutcomeOf(err).Kind == BrokerUnavailable:
		return Unavailable(fmt.Errorf("not delivered: %w (message %s): %w", ErrPredecessorFailed, head.ID, cmp.Or(errors.Unwrap(err), err)))
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("not delivered: %w (message %s): %w", ErrPredecessorFailed, head.ID, err)
	default:
		return fmt.Errorf("not delivered: %w (message %s): %v", ErrPredecessorFailed, head.ID, err)
	}
}
