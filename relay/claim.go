package relay

// Start says where a relay that is new to the log begins.
type Start int

// The start positions.
const (
	// FromOldest starts with the oldest message that the log still has.
	FromOldest Start = iota
	// FromNow starts with messages that are published from now on.
	FromNow
)
