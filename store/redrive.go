package store

import (
	"time"
)

// Redrive sends dead letters back at a limited rate. It survives the processes that drive it, because its whole state is
// in the store. It covers the dead letters that existed when it began, and leaves later ones alone, even of the same
// messages.
type Redrive struct {
	ID        int64        `json:"id"`
	Filter    DeadFilter   `json:"filter"`
	Rate      float64      `json:"rate,omitzero"`
	State     RedriveState `json:"state"`
	By        string       `json:"by"`
	StartedAt time.Time    `json:"started_at"`
	// EndedAt is when it finished, failed or was cancelled; CancelledBy is who cancelled it.
	EndedAt     time.Time `json:"ended_at,omitzero"`
	CancelledBy string    `json:"cancelled_by,omitempty"`

	// Selected counts the dead letters that were open when it began, Done those that it has sent back, Refused those that
	// had been redriven too often and stay open. Skipped counts, once it has finished, those that someone else redrove or
	// discarded first.
	Selected int64 `json:"selected"`
	Done     int64 `json:"done"`
	Refused  int64 `json:"refused"`
	Skipped  int64 `json:"skipped"`

	// Guard protects the receiver, nil if nothing does. ListRedrives returns that of running ones.
	Guard *RedriveGuard `json:"guard,omitempty"`

	// Outcome is the current outcome of the Done messages. ShowRedrive counts it; elsewhere it is nil.
	Outcome *RedriveOutcome `json:"outcome,omitempty"`

	// Failures counts consecutive failed steps; Cause is the cause of the last failure, "" when there are none.
	Failures int    `json:"failures,omitzero"`
	Cause    string `json:"cause,omitempty"`

	// Position is the number of the last dead letter processed, UpTo that of the last one to process. NextAt is when the
	// rate, or the wait after a failure, allows the next step.
	Position int64     `json:"position"`
	UpTo     int64     `json:"up_to"`
	NextAt   time.Time `json:"next_at,omitzero"`
}

// RedriveGuard protects the receiver of a redrive whose messages fail again.
type RedriveGuard struct {
	// First: the others follow when the first message was delivered. StopAt is the share of first attempts that may fail, 0 for any.
	First  bool    `json:"first,omitempty"`
	StopAt float64 `json:"stop_at,omitempty"`
	// SentAt is when a message was sent last; Passed says that others may follow the first one.
	SentAt time.Time `json:"sent_at,omitzero"`
	Passed bool      `json:"passed,omitempty"`
	// Made and Failed count the first attempts that StopAt is about. Those of dead letters with numbers up to After no longer count:
	// ContinuedBy let the redrive continue after them.
	Made        int64  `json:"made,omitempty"`
	Failed      int64  `json:"failed,omitempty"`
	After       int64  `json:"after,omitempty"`
	ContinuedBy string `json:"continued_by,omitempty"`
	// Stopped says why a running redrive sends nothing until it is continued or cancelled; "" while it is not stopped.
	Stopped RedriveStop `json:"stopped,omitempty"`
}

// RedriveStop is why a redrive has stopped.
type RedriveStop string

// The reasons why a redrive stops.
const (
	StoppedFirst   RedriveStop = "first failed"   // the first message failed
	StoppedWaiting RedriveStop = "first waits"    // the first message was neither delivered nor failed in five minutes
	StoppedLimit   RedriveStop = "limit exceeded" // too many first attempts failed
	// StoppedBlocked: none of its messages was attempted in five minutes. It continues when one is attempted, or when an operator continues it.
	StoppedBlocked RedriveStop = "nothing attempted"
)

// Stopped is why a running redrive has stopped, "" if it has not.
func (r *Redrive) Stopped() RedriveStop {
	if r.State != RedriveRunning || r.Guard == nil {
		return ""
	}
	return r.Guard.Stopped
}

// RedriveState is the state of a redrive.
type RedriveState string

// The states of a redrive.
const (
	RedriveRunning   RedriveState = "running"
	RedriveFinished  RedriveState = "finished"
	RedriveCancelled RedriveState = "cancelled"
	RedriveFailed    RedriveState = "failed" // its steps failed MaxRedriveFailures times in a row
)

// MaxRedriveFailures is how many steps of a redrive may fail in a row. The wait after each doubles from a second to a minute, so
// the redrive fails after about a quarter of an hour.
const MaxRedriveFailures = 20

// RedriveOutcome counts the messages that a redrive has sent back by what happened to them.
type RedriveOutcome struct {
	// Delivered are done, Waiting are parked, Failed have been dead-lettered again. Failing are those of Waiting that failed at least once.
	// Of the Unknown ones, nothing says what happened: they were erased, or what was kept of their relay was removed.
	Delivered int64 `json:"delivered"`
	Waiting   int64 `json:"waiting"`
	Failing   int64 `json:"failing,omitempty"`
	Failed    int64 `json:"failed"`
	Unknown   int64 `json:"unknown,omitempty"`
}

// Redriven counts messages of a redrive: those whose dead letters are there and were not erased, those of them that are parked, those of the
// parked ones that failed since, and those that were dead-lettered again.
type Redriven struct{ Found, Parked, Failing, Dead int64 }

// Delivered counts the messages that are neither parked nor dead letters again, though the dead letter that was redriven is there. A
// message without one may be anything.
func (n Redriven) Delivered() int64 { return max(0, n.Found-n.Parked-n.Dead) }

// PurgeRedrives is how many ended redrives a store removes in one call of Maintainer, about once a minute.
const PurgeRedrives = 1_000
