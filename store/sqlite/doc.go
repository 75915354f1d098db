// Package sqlite keeps the outbox in a SQLite file, through database/sql and with any driver: messages are written in the *sql.Tx
// of the business change, and relays in any number of processes on the same host deliver them.
//
//	db, err := sql.Open("sqlite", "file:shop.db") // modernc.org/sqlite
//	...
//	_, err = sqlite.Migrate(ctx, db, sqlite.Config{}, sqlite.Latest)
//	...
//	store, err := sqlite.New(db, sqlite.Config{})
//
// docs/stores/sqlite.md lists the settings that matter and the limits, and explains how to back up.
//
// # One writer
//
// SQLite lets one transaction write at a time. Its rows become visible when it commits, before the next transaction can write, so
// sequence order is commit order: a cursor is a position, and no message arrives late.
//
// Each writing transaction of the store takes the write lock with its first statement (see lockSQL) and is short. While another
// writer has the lock, the store retries with growing pauses for up to Config.BusyTimeout. Reads never wait.
//
// If a user's transaction reads, another writer commits, and the transaction then publishes, waiting does not help: Insert fails
// with ErrBusy. To read before writing, use InTx, which takes the lock at once.
//
// # What a power failure loses
//
// Publishing and operators' decisions commit as the connection is set; with PRAGMA synchronous = FULL, SQLite's default, they
// survive. Cursors, leases and outcomes commit without waiting for the disk. The write-ahead log keeps the order of commits, so a
// power failure loses the last of them and never one in the middle: messages are then redelivered, and none is skipped.
//
// # Which file it is
//
// A lease identifies, by device and inode, the file in which it was granted. A copy of the file contains the rows of leases, but
// they do not hold there. If the file is replaced under a process, its relays end with store.ErrReplaced: new connections would
// reach another database than the open ones.
//
// # Tables
//
// The log is append-only; a message to be parked or dead-lettered is copied, inside the database, to the parked messages or the
// dead letters. migrations/0001_outbox.up.sql documents the tables and the purpose of each index.
package sqlite
