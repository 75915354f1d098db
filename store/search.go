package store

import "time"

// Bounds of a search for dead letters, e.g. for a page: it looks at up to SearchLimit of them, and begins nothing more after SearchTime.
// Those that an index leaves out are not looked at. Relays, states, fingerprints, redrives, IDs of messages and numbers have one.
const (
	SearchLimit = 50_000
	SearchTime  = 2 * time.Second
)

// Extent says whether a search has found everything.
type Extent struct {
	// Complete: everything that matches was found. Otherwise, Incomplete says why not, and there is at least what was found.
	Complete   bool        `json:"complete"`
	Incomplete []SearchGap `json:"incomplete,omitempty"`
}

// SearchGap is what a search has left out.
type SearchGap struct {
	Reason GapReason `json:"reason"`
	// Text is a sentence for people.
	Text string `json:"text"`
	// Until is when that one was dead-lettered which was looked at last.
	Until time.Time `json:"until,omitzero"`
}

// GapReason says why a search was not complete.
type GapReason string

// The reasons.
const (
	GapDeadLetters GapReason = "dead_letters" // SearchLimit were looked at
	GapTime        GapReason = "time"         // SearchTime was up
	GapCauses      GapReason = "causes"       // there are causes without a Fingerprint, or more of them than are counted
)

// FoundDead says what a search for dead letters has found.
type FoundDead struct {
	// Total counts all that match, as far as they were looked at.
	Total int64 `json:"total"`
	// Next is the number to continue after, 0 at the end.
	Next int64 `json:"next,omitempty"`
	Extent
}

// Count is the total.
func (f FoundDead) Count() Count { return Count{f.Total, !f.Complete} }

// FoundCauses are groups of dead letters by cause, most frequent first.
type FoundCauses struct {
	Causes []CauseCount `json:"causes"`
	Extent
}

// DeadSpan is a part of the dead letters in the order of their numbers: how many they are, and the lowest and the highest number.
type DeadSpan struct{ N, First, Last int64 }
