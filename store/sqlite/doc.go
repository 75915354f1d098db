// Package sqlite keeps the outbox in a SQLite database, through database/sql and with any driver: a message is written in
// the *sql.Tx of the business change, and relays of any number of processes on the same host deliver it.
package sqlite
