package postrider

import "time"

// AttemptInfo is one entry in the history of a message that was not delivered at once.
type AttemptInfo struct {
	// Attempt counts from 1; 0 is an entry that is not an attempt, such as a snooze or a redrive.
	Attempt int `json:"attempt"`
	// At is on the database's clock.
	At time.Time `json:"at"`
	// Cause says what happened.
	Cause string `json:"cause"`
}
