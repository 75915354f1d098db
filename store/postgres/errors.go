package postgres

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/internal/migrate"
	"github.com/postrider/postrider/store"
)

// The reasons why a store refuses a schema. The error text names the command that helps.
var (
	ErrSchemaMissing = migrate.ErrMissing
	ErrSchemaOlder   = migrate.ErrOlder
	ErrSchemaNewer   = migrate.ErrNewer
)

// The SQLSTATEs that this package handles.
const (
	undefinedTable        = "42P01"
	undefinedObject       = "42704"
	insufficientPrivilege = "42501"
	uniqueViolation       = "23505"
	checkViolation        = "23514"
	serializationFailure  = "40001"
	deadlockDetected      = "40P01"
	lockNotAvailable      = "55P03"
	queryCanceled         = "57014"
	adminShutdown         = "57P01"
	crashShutdown         = "57P02"
	failedTransaction     = "25P02"
	idleTooLong           = "25P03"
	transactionTooLong    = "25P04"
	duplicateTable        = "42P07"
	duplicateObject       = "42710"
	invalidObject         = "42P17"
	readOnlyTransaction   = "25006"
	divisionByZero        = "22012"
	// notNow is raised by this package's own statements.
	notNow = "PR001"
)

// code returns the SQLSTATE of a server error from any driver, "" for other errors.
func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	// lib/pq and other drivers that report it.
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return e.SQLState()
	}
	return ""
}

// uncertain adds store.ErrUncertain to the error of a COMMIT, unless it was not sent or the server refused it. Class 08 is about
// connections, e.g. a pooler's to the server; after the others, the server ends. For an answer that is lost, pgx may return ErrConnClosed,
// which it calls safe to retry.
func uncertain(err error) error {
	c := code(err)
	switch {
	case err == nil, pgconn.SafeToRetry(err) && !errors.Is(err, pgconn.ErrConnClosed), c != "" && !strings.HasPrefix(c, "08") && c != adminShutdown && c != crashShutdown:
		return err
	case errors.Is(err, pgx.ErrTxClosed), errors.Is(err, sql.ErrTxDone), errors.Is(err, pgx.ErrTxCommitRollback):
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrUncertain, err)
}

// translate adds the operation to an error and, where a user can act on it, what to do.
func translate(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrTxClosed), errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("%s: %w: this one was committed or rolled back", doing, store.ErrNoTransaction)
	}
	switch code(err) {
	case undefinedTable:
		return &missingTableError{doing: doing, err: err}
	case insufficientPrivilege:
		return fmt.Errorf("%s: %w; `postrider migrate grants --role relay --to NAME` prints those of a relay, and those of other roles: %w", doing, store.ErrDenied, err)
	case readOnlyTransaction:
		return fmt.Errorf("%s: connected to a standby or a read-only session; connect to the primary: %w", doing, err)
	case serializationFailure, deadlockDetected:
		return fmt.Errorf("%s: other transactions worked on the same rows; roll this one back and run it again: %w", doing, err)
	case checkViolation, uniqueViolation:
		if e, ok := errors.AsType[*pgconn.PgError](err); ok && strings.Contains(e.TableName, "log") && (e.Code == uniqueViolation || e.ConstraintName == "") {
			return fmt.Errorf("%s: the sequence of the log was set to a number that is taken or that no segment takes; the maintenance of a relay "+
				"repairs it within about a minute; run one: %w", doing, err)
		}
	case failedTransaction:
		return fmt.Errorf("%s: an earlier statement of the transaction failed; roll it back: %w", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// missingTableError is ErrSchemaMissing for a statement that misses a table, whose name the server gives.
type missingTableError struct {
	doing string
	err   error
}

func (e *missingTableError) Error() string {
	return fmt.Sprintf("%s: a table is missing; run `postrider migrate up`, and if it finds the schema up to date, `postrider doctor`, "+
		"which says what is missing: %v", e.doing, e.err)
}

func (e *missingTableError) Unwrap() []error { return []error{ErrSchemaMissing, e.err} }

// storable adds store.ErrUnstorable to an error that says that the server cannot store a value: class 22 is about data, 54 about
// limits.
func storable(err error) error {
	if c := code(err); strings.HasPrefix(c, "22") || strings.HasPrefix(c, "54") {
		return fmt.Errorf("%w: %w", store.ErrUnstorable, err)
	}
	return err
}

// again reports whether a transaction is worth repeating: it failed because of concurrent transactions, or because this process
// was paused.
func again(err error) bool {
	switch code(err) {
	case serializationFailure, deadlockDetected, uniqueViolation, idleTooLong, transactionTooLong:
		return true
	}
	return false
}

// Conflicted implements store.Transactor.
func (s *Store) Conflicted(err error) bool {
	switch code(err) {
	case serializationFailure, deadlockDetected, lockNotAvailable:
		return true
	}
	return false
}

// attempts is how many times in all a transaction is tried that fails because of concurrent transactions.
const attempts = 5

// retry repeats a transaction that fails because of concurrent transactions.
func retry[T any](f func() (T, error)) (T, error) {
	for n := 1; ; n++ {
		v, err := f()
		if err == nil || n == attempts || !again(err) {
			return v, err
		}
	}
}
