package store

// Relay is what a relay needs from the database that holds the outbox. All durations passed in or returned are measured on
// the database's clock; a relay never compares them with its own.
type Relay interface {
	Leases
	Log
	// Records has operators' decisions, which a relay applies.
	Records
}

// Wrapper is implemented by a store that wraps another one. It says which, so that two relays of one name in a process know that they
// work on the same store. Without it, the second of them may call a message while a call of the first one, which has ended and ignores
// its context, still works on the same key.
type Wrapper interface {
	// Wraps returns the store that is wrapped, or a comparable value that identifies it.
	Wraps() any
}
