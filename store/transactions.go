package store

import (
	"context"
	"time"
)

// TxSettler is what relay.HandleTx needs from a relay's store: transactions on the outbox's database that commit together with a
// settlement. storetest.HandleTx tests it.
type TxSettler[Tx any] interface {
	// Begin starts a transaction. A statement in it sees what others have committed before the statement began.
	Begin(ctx context.Context) (Tx, error)
	// Rollback rolls tx back, even if ctx has ended. If tx has ended already, it does nothing.
	Rollback(ctx context.Context, tx Tx) error
	// CommitSettled commits tx together with a settlement, or neither, and returns those keys in Release that are no longer
	// held. Whatever it returns, tx has ended. It differs from Settle:
	//
	//  - It is as durable as other commits of tx's kind.
	//  - A message in Removed must be parked.
	//  - A settlement without a Number has only Removed and DeliveredCount. Several of one partition can be in progress at once.
	//  - It holds no lock on which other processes might wait while this process could be paused.
	//
	// Errors: ErrLeaseLost, ErrNotParked and those of the settlement, after which nothing was committed; after any other error
	// it is uncertain whether it was.
	CommitSettled(ctx context.Context, tx Tx, relay string, s Settlement) (released []string, err error)
}

// TxLimiter is optional for a TxSettler, or for an Inbox: transactions for handlers that the database ends if the
// process that began them is paused, because others wait for their locks.
type TxLimiter[Tx any] interface {
	// BeginLimited is Begin for a transaction that the database ends if it waits for its next statement for longer than
	// IdleLimit, or than atMost if that is positive and shorter. The limit is set as the transaction begins. While Connections
	// transactions are open, BeginLimited waits for one of them to end.
	BeginLimited(ctx context.Context, atMost time.Duration) (Tx, error)
	// IdleLimit is the limit of all transactions of BeginLimited; 0 means none.
	IdleLimit() time.Duration
	// Connections is the maximum number of open transactions of BeginLimited, so that the process's other work finds a
	// connection; 0 means any number.
	Connections() int
}
