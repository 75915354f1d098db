package outbox

import "errors"

var (
	// ErrSuppress is returned by a BeforePublish hook to leave a message unpublished, without an error for the publisher.
	ErrSuppress = errors.New("suppress message")

	// errUnwound is the cause passed to AfterRollback hooks when the function given to InTx did not return.
	errUnwound = errors.New("the function in the transaction panicked or ended its goroutine")
)
