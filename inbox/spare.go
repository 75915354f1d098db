package inbox

import (
	"context"
	"errors"

	"github.com/postrider/postrider"
)

// An attempt that the database ended says nothing about the message, and with few attempts a short failure of the database would
// dead-letter many. Yet a handler can be the cause: its statement makes the server end the connection, or the commit violates a
// constraint, each time. An error does not tell the two apart, so a few such failures of each message are not counted, and the later ones are.

// storeError is an error of a call that the consumer itself made within an attempt.
type storeError struct{ error }

func (e *storeError) Unwrap() error { return e.error }

// ofDatabase reports whether an attempt seems to have failed because of the database. undone is the error of the rollback: there is one
// if the connection is gone, whatever the handler made of the error that it got.
func (c *Consumer[Tx]) ofDatabase(failed, undone error) bool {
	if failed == nil {
		return false
	}
	if _, own := errors.AsType[*storeError](failed); own {
		return true
	}
	switch {
	case postrider.OutcomeOf(failed).Kind != postrider.Retried, errors.Is(failed, postrider.ErrUnhandled):
		return false // the handler has decided
	case errors.Is(failed, context.DeadlineExceeded):
		return false // of AttemptTimeout, for which drivers close the connection
	}
	return undone != nil || c.store.Conflicted(failed)
}

// sparedMost is how many failures of a message are not counted, and sparedMessages of how many messages that is remembered: those
// that another process has settled since stay.
const sparedMost, sparedMessages = 5, 10_000

// spares reports whether a failure that seems to be the database's is not counted as an attempt of its message.
func (c *Consumer[Tx]) spares(m *postrider.Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.spared) >= sparedMessages {
		clear(c.spared)
	}
	if c.spared[m.ID] >= sparedMost {
		return false
	}
	c.spared[m.ID]++
	return true
}

// retryFailed rolls back a parked message's attempt that failed, and returns its outcome. A call of the database that takes too long is not
// counted, except one that the message may be the cause of, such as the commit.
func (c *Consumer[Tx]) retryFailed(m *postrider.Message, timer *storeTimer, tx Tx, failed error) error {
	late := timer.cause()
	undone := c.rollback(tx) // while the timer runs: with database/sql, only the context of the transaction ends it
	err := errors.Join(failed, late, undone)
	_, own := errors.AsType[*storeError](failed)
	if late != nil && !own || c.ofDatabase(failed, undone) && c.spares(m) {
		return postrider.Unavailable(err)
	}
	return err
}
