package inbox

import "errors"

// Errors of inboxes and consumers.
var (
	// ErrNoHandler: the consumer has no handler.
	ErrNoHandler = errors.New("there is no handler; give the consumer one")
	// ErrStarted: Run was called before. A consumer runs only once.
	ErrStarted = errors.New("consumer was started before; make a new one")
	// ErrStopped: the consumer has stopped.
	ErrStopped = errors.New("consumer has stopped")
	// ErrDuplicateHandler: a message type, or a version of it, already has a handler.
	ErrDuplicateHandler = errors.New("message type has a handler already")
	// ErrNoEnd: the source of a consumer is not a log, so nobody can say whether everything that it has was read.
	ErrNoEnd = errors.New("the source cannot say where it ends")
	// ErrGap: a message's AggregateVersion is not the next after the last applied one.
	ErrGap = errors.New("a version of the aggregate is missing")
)

// The reasons of a consumer's dead letters, in addition to those that handlers give and postrider.Undecodable.
const (
	// AttemptsExhausted: every attempt failed.
	AttemptsExhausted = "attempts exhausted"
	// Unstorable: the message was to be parked, and the database cannot store it.
	Unstorable = "cannot be stored"
	// VersionGap: the missing version of the aggregate did not arrive in time.
	VersionGap = "version gap"
)
