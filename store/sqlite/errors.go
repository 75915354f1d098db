package sqlite

import (
	"errors"
	"fmt"

	"github.com/postrider/postrider/store"
)

// What can be wrong with the database file. Operations wrap one of these around the driver's error.
var (
	// ErrBusy: another connection kept the database locked for longer than Config.BusyTimeout.
	ErrBusy = errors.New("the database is locked by another writer; keep transactions short, or raise BusyTimeout")
	// ErrFull: no space is left; nothing of the transaction was written.
	ErrFull = errors.New("the disk or the database is full; free disk space or raise max_page_count; " +
		"what is committed is safe, and delivery goes on when there is room")
	// ErrReadOnly: the file or its directory cannot be written by this process.
	ErrReadOnly = errors.New("the database cannot be written; give this process the right to write the file and its " +
		"directory (the -wal and -shm files stand there), and open it without mode=ro")
	// ErrCorrupt: the file is damaged, or not a SQLite database.
	ErrCorrupt = errors.New("the database file is damaged or not a SQLite database; stop every process that uses it, " +
		"look with `sqlite3 FILE 'PRAGMA integrity_check'`, and restore a backup or use `sqlite3 FILE .recover`")
	// ErrIO: the operating system failed to read or write the file.
	ErrIO = errors.New("the database file cannot be read or written; look for errors of the disk or file system; " +
		"a network file system is not supported")
	// ErrCannotOpen: the file does not exist and cannot be created.
	ErrCannotOpen = errors.New("the database file cannot be opened; check that its path exists and may be read and " +
		"written by this process")
	// ErrUnsuitable: the database or the driver cannot hold an outbox; the error says what is wrong.
	ErrUnsuitable = errors.New("unsuitable for an outbox")
)

// errOvertaken explains why waiting does not help a transaction that wants to write after it has read.
var errOvertaken = errors.New("the transaction had read before another one wrote: begin it with InTx, as BEGIN IMMEDIATE, or " +
	"with a write, and run it again")

// codeBusySnapshot is the extended result code SQLITE_BUSY_SNAPSHOT.
const codeBusySnapshot = 517

// Primary result codes of SQLite (https://www.sqlite.org/rescode.html).
const (
	codeGeneric    = 1
	codeBusy       = 5
	codeLocked     = 6
	codeReadOnly   = 8
	codeIO         = 10
	codeCorrupt    = 11
	codeFull       = 13
	codeCantOpen   = 14
	codeTooBig     = 18
	codeConstraint = 19
	codeMismatch   = 20
	codeNotADB     = 26
)

// primary returns the primary result code of a driver's error, 0 if it has none.
func (c Config) primary(err error) int { return c.ErrorCode(err) & 0xff }

// storable adds store.ErrUnstorable to an error that says that SQLite cannot store a value.
func (c Config) storable(err error) error {
	switch c.primary(err) {
	case codeTooBig, codeConstraint, codeMismatch:
		return fmt.Errorf("%w: %w", store.ErrUnstorable, err)
	}
	return err
}

// explain adds the operation to an error and, where SQLite's code tells, what is wrong and what to do about it.
func (c Config) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	var kind error
	switch c.primary(err) {
	case codeBusy, codeLocked:
		if kind = ErrBusy; c.ErrorCode(err) == codeBusySnapshot {
			return fmt.Errorf("%s: %w: %w: %w", doing, ErrBusy, errOvertaken, err)
		}
	case codeReadOnly:
		kind = ErrReadOnly
	case codeIO:
		kind = ErrIO
	case codeCorrupt, codeNotADB:
		kind = ErrCorrupt
	case codeFull:
		kind = ErrFull
	case codeCantOpen:
		kind = ErrCannotOpen
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: %w: %w", doing, kind, err)
}
