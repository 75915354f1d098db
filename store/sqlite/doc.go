// Package sqlite keeps the outbox in a SQLite file, through database/sql and with any driver: a message is written in the
// *sql.Tx of the business change, and relays of any number of processes on the same host deliver it.
//
//	db, err := sql.Open("sqlite", "file:shop.db") // modernc.org/sqlite
//	...
//	_, err = sqlite.Migrate(ctx, db, sqlite.Config{}, sqlite.Latest)
//	...
//	store, err := sqlite.New(db, sqlite.Config{})
//
// docs/stores/sqlite.md has the settings that matter, the limits, and how to back up.
//
// # One writer
//
// SQLite lets one transaction write at a time. What it writes becomes visible when it commits, before the next one can
// write, so that the order of sequence is the order of commits: a cursor is a position, and no message comes late.
//
// Each transaction of the store that writes takes the write lock with its first statement (see lockSQL) and is short. When
// another writer has the lock, the store tries again, with growing pauses, for Config.BusyTimeout. Reading never waits.
//
// A transaction of the user that reads, is overtaken by another writer, and then publishes cannot be saved by waiting:
// Insert fails with ErrBusy. InTx, which takes the lock at once, is the way to read before writing.
//
// # What a loss of power undoes
//
// Publishing and the decisions of operators commit as the connection is set; with PRAGMA synchronous = FULL, SQLite's
// default, they survive. Cursors, leases and outcomes are committed without waiting for the disk. The write-ahead log keeps
// the order of commits, so that a loss of power undoes the last of them and never one in the middle: messages are then
// delivered again, and none is skipped.
//
// # Which file it is
//
// A lease names the file in which it was granted, by device and inode. A copy brings along the rows of leases, which do not hold
// in it. A file that is replaced under a process ends its relays with relay.ErrReplaced: connections made since reach another
// database than those that were open.
//
// # Tables
//
// The log is append-only; a message that leaves the main line is copied, inside the database, to the parked messages or the
// dead letters. The tables and what each index is for stand in migrations/0001_outbox.up.sql.
package sqlite
