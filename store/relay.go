package store

// Relay is what a relay needs from the database that holds the outbox. All durations passed in or returned are measured on
// the database's clock; a relay never compares them with its own.
type Relay interface {
	Leases
	Log
	// Records has operators' decisions, which a relay applies.
	Records
}
