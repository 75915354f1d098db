package postrider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
)

// ErrPredecessorFailed marks the error of a message that failed only because an earlier message with the same key in the
// same Publish call did. It does not count as an attempt of its own.
var ErrPredecessorFailed = errors.New("a message before it with the same key failed")

// PredecessorFailed is the error that a publisher reports for a message after head, which has the same key and failed
// with err. It matches ErrPredecessorFailed. It is Unavailable or a context's error when err is; dead-lettering head does
// not dead-letter the messages after it.
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
