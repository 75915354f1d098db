// Package faults crashes servers under living relays and consumers, promotes standbys that lag, holds connections back and
// stops processes for good, and has a checker compare what arrived with what the database says was committed.
//
// Each test is a world (a server of its own and the tables of the load), a load, a fault and a check. The load raises the
// counter of an account, writes the step to a ledger and publishes it with the account as key, all in one transaction. So
// the ledger says in the end which messages must have arrived, which must not, and in which order those of each account
// are.
package faults
