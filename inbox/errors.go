package inbox

import "errors"

// Errors of inboxes and consumers.
var (
	// ErrNameTaken: a relay that reads the outbox has the name of the consumer.
	ErrNameTaken = errors.New("a relay that reads the outbox has this name; give the consumer another")
	// ErrNoHandler: no handler was given.
	ErrNoHandler = errors.New("there is no handler; give the consumer one")
	// ErrStarted: Run was called before. A consumer runs once.
	ErrStarted = errors.New("consumer was started before; make a new one")
	// ErrStopped: the consumer has stopped.
	ErrStopped = errors.New("consumer has stopped")
	// ErrDuplicateHandler: a message type, or a version of it, has a handler already.
	ErrDuplicateHandler = errors.New("message type has a handler already")
	// ErrGap: a message's AggregateVersion is not the one after that which was applied last.
	ErrGap = errors.New("a version of the aggregate is missing")
	// ErrUndone: the database has rolled back a whole transaction by itself, or may have, as MySQL does in a deadlock, and SQLite
	// when a write is interrupted. What follows in it could be a transaction of its own. Transactor.Savepoint returns it.
	ErrUndone = errors.New("the whole transaction was rolled back")
)

// The reasons of a consumer's dead letters, beside those that handlers give and postrider.Undecodable.
const (
	// AttemptsExhausted: every attempt failed.
	AttemptsExhausted = "attempts exhausted"
	// UnknownSchemaVersion: the consumer handles the type, but not this version of it.
	UnknownSchemaVersion = "unknown schema version"
	// VersionGap: the missing version of the aggregate did not come in time.
	VersionGap = "version gap"
)
