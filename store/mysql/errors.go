package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/postrider/postrider/store"
)

// Errors of the database. Operations wrap one of these around the driver's error.
var (
	// ErrDeadlock: the database rolled this transaction back to end a deadlock. Run it again.
	ErrDeadlock = errors.New("the database rolled the transaction back to end a deadlock; run it again from its beginning")
	// ErrLockTimeout: another transaction kept a lock for longer than innodb_lock_wait_timeout or lock_wait_timeout.
	ErrLockTimeout = errors.New("another transaction kept a lock for too long; roll back and run the transaction again, or find " +
		"the other one in information_schema.innodb_trx")
	// ErrTooLarge: a message does not fit into a packet. Nothing was sent, and the transaction can go on.
	ErrTooLarge = errors.New("the message is larger than the server takes; keep the payload elsewhere and publish a reference, or " +
		"raise max_allowed_packet (256 KiB of it are kept for what the tables add to a message)")
	// ErrReadOnly: the server or the transaction does not accept writes.
	ErrReadOnly = errors.New("the server takes no writes here; connect to the primary, and not in a read-only transaction")
	// ErrFull: the disk or a table is full; what is committed is safe.
	ErrFull = errors.New("the disk or a table is full; free disk space; what is committed is safe, and delivery goes on when there is room")
	// ErrDenied: the database user lacks a privilege. It is a store.ErrDenied.
	ErrDenied = fmt.Errorf("%w; grant it (docs/stores/mysql.md says who needs which)", store.ErrDenied)
	// ErrUnsuitable: the server's version or configuration does not suit an outbox; the error says why.
	ErrUnsuitable = errors.New("unsuitable for an outbox")
)

// explain adds what was being done and, if the error number tells, what is wrong and what to do about it.
func (c Config) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	if kind := kinds[c.ErrorCode(err)]; kind != nil && !errors.Is(err, kind) {
		return fmt.Errorf("%s: %w: %w", doing, kind, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// storable adds store.ErrUnstorable to an error that says that the server cannot store a value.
func (c Config) storable(err error) error {
	switch code := c.ErrorCode(err); {
	case err == nil:
		return nil
	case errors.Is(err, ErrTooLarge), slices.Contains(unstorable[:], code):
		return fmt.Errorf("%w: %w", store.ErrUnstorable, err)
	}
	return err
}

// uncertain adds store.ErrUncertain to the error of statements with COMMIT, unless they were not sent or the server refused them. A server
// that ends a statement may have executed the COMMIT in it.
func (c Config) uncertain(err error) error {
	code := c.ErrorCode(err)
	if errors.Is(err, sql.ErrTxDone) || code != 0 && !slices.Contains(ofServer[:], code) {
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrUncertain, err)
}

// inTransaction explains an error of a statement in a user's transaction.
func (s *Store) inTransaction(doing string, err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("%s: %w: %w", doing, store.ErrNoTransaction, err)
	}
	return s.cfg.explain(doing, err)
}

// Conflicted implements store.Transactor.
func (s *Store) Conflicted(err error) bool {
	kind := kinds[s.cfg.ErrorCode(err)]
	return errors.Is(kind, ErrDeadlock) || errors.Is(kind, ErrLockTimeout)
}

// passing reports whether a transaction of the store may succeed when it is run again.
func (c Config) passing(ctx context.Context, err error) bool {
	kind := kinds[c.ErrorCode(err)]
	return ctx.Err() == nil && (errors.Is(kind, ErrDeadlock) || errors.Is(kind, ErrLockTimeout))
}
