// Package faults crashes servers under running relays and consumers, promotes standbys that lag, delays connections and
// stops processes permanently, and has a checker compare what arrived with what the database committed.
//
// Each test consists of a world (its own server and the tables of the load), a load, a fault and a check. The load
// increments the counter of an account, writes the step to a ledger and publishes it with the account as key, all in one
// transaction. So the ledger finally says which messages must have arrived, which must not, and in which order those of
// each account must be.
package faults
