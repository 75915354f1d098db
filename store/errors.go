package store

import (
	"errors"
)

// Errors of TxSettler.CommitSettled.
var (
	// ErrLeaseLost: the lease is no longer the caller's.
	ErrLeaseLost = errors.New("lease was lost; nothing was committed")
	// ErrNotParked: a message is no longer parked, because an operator removed it.
	ErrNotParked = errors.New("message is no longer parked; nothing was committed")
)

var (
	// ErrNameOfConsumer: a consumer of the database has the relay's name. What is recorded under that name belongs to the consumer.
	ErrNameOfConsumer = errors.New("a consumer of this database has this name; give the relay another, or remove the consumer " +
		"if it is gone for good: postrider outbox remove")
	// ErrNameOfRelay: a relay of the database has the consumer's name.
	ErrNameOfRelay = errors.New("a relay of this database has this name; give the consumer another, or remove the relay " +
		"if it is gone for good: postrider outbox remove")
	// ErrReplaced: the database that the store has open is not the one that new connections reach, e.g. because its file was
	// moved while the process ran. A store reports it from Heartbeat, and the relay ends.
	ErrReplaced = errors.New("the database was replaced while this process ran; restart every process that uses it")
)

// ErrDenied: the role in the database lacks a right.
var ErrDenied = errors.New("the database role lacks a right")

// ErrRepartitioned is returned to a process that started before the number of partitions was changed: it must be restarted. When
// Heartbeat reports it, the relay ends.
var ErrRepartitioned = errors.New("the number of partitions was changed while this process ran; restart it")

// Errors of transactions.
var (
	// ErrNoTransaction is returned when Publish is given no transaction, or one that has ended.
	ErrNoTransaction = errors.New("publish needs an open transaction: pass the one of the business change, or use InTx")
	// ErrUncertain: COMMIT was sent and its answer did not come, e.g. because the connection broke. Before you run the transaction again,
	// look whether it took effect, or make the second run harmless.
	ErrUncertain = errors.New("it is not known whether the transaction was committed")
	// ErrUndone: the database has rolled back, or may have rolled back, a whole transaction on its own, as MySQL does in
	// a deadlock, and SQLite when a write is interrupted. Later statements could run outside the transaction.
	// Transactor.Savepoint returns it.
	ErrUndone = errors.New("the whole transaction was rolled back")
)

// ErrKeyHeld: a dead letter was to hold a key that is held already. Run the transaction again: others may have held it since it began.
var ErrKeyHeld = errors.New("the key is held already")

// ErrPassing: the database cannot do it now, for a reason that may pass, such as a full disk. Settled.Failed has it if the settlement may
// have been applied nevertheless, or may be later.
var ErrPassing = errors.New("the database cannot do this now")

// ErrUnstorable: the database refuses a value of a message, e.g. because of its size, and would refuse it again.
var ErrUnstorable = errors.New("the database cannot store the message")

// The reasons why an Administrator refuses. Nothing has been changed.
var (
	// ErrAlive: a process is alive that must be stopped first.
	ErrAlive = errors.New("a relay process is alive")
	// ErrUndelivered: a relay has not delivered everything in the log.
	ErrUndelivered = errors.New("a relay has undelivered messages")
	// ErrInUse: transactions that have used the outbox, e.g. to publish, are still open.
	ErrInUse = errors.New("the outbox is in use")
	// ErrUnknownRelay: the outbox has never seen this relay.
	ErrUnknownRelay = errors.New("no such relay")
	// ErrRegistered: a relay or consumer of this name has registered.
	ErrRegistered = errors.New("the relay has registered; remove it first")
	// ErrParked: a relay has held keys, parked messages or open dead letters.
	ErrParked = errors.New("the relay has parked messages, held keys or open dead letters")
)

// ErrNotHeld is returned by operations on a key that is not held.
var ErrNotHeld = errors.New("key is not held")

// ErrNoParked is returned by operations on a parked message that is not parked, or that is queued in a held key.
var ErrNoParked = errors.New("no parked message that waits by itself has this ID")

// ErrNoDecision: no decision has this ID.
var ErrNoDecision = errors.New("no such decision")

var (
	// ErrNoRedrive: no redrive has this ID.
	ErrNoRedrive = errors.New("no such redrive")
)
