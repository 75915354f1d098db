package deadletter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"
)

// Errors of operations on redrives.
var (
	// ErrNoRedrive: no redrive has this ID.
	ErrNoRedrive = errors.New("no such redrive")
	// ErrRedriveEnded: the redrive has finished, failed or been cancelled.
	ErrRedriveEnded = errors.New("redrive has ended")
)

// RedriveState is the state of a redrive.
type RedriveState string

// The states of a redrive.
const (
	RedriveRunning   RedriveState = "running"
	RedriveFinished  RedriveState = "finished"
	RedriveCancelled RedriveState = "cancelled"
	RedriveFailed    RedriveState = "failed" // its steps failed MaxFailures times in a row
)

// MaxFailures is how many steps of a redrive may fail in a row. The wait after each doubles from a second to a minute, so
// the redrive fails after about a quarter of an hour.
const MaxFailures = 20

// PurgeRedrives is how many ended redrives a store removes in one call of relay.Maintainer, about once a minute.
const PurgeRedrives = 1_000

// Plan describes a redrive to start.
type Plan struct {
	// Filter selects open dead letters; its MaxRedrives says which are refused.
	Filter Filter
	// Rate is the maximum number of dead letters sent back per second, by all processes together; 0: as fast as the store
	// allows.
	Rate float64
	// By is who decided it, for the record.
	By string
}

// Validate reports the errors in a plan.
func (p Plan) Validate() error {
	var errs []error
	if p.Filter.State != "" && p.Filter.State != Open {
		errs = append(errs, fmt.Errorf("a redrive sends back open dead letters; the filter asks for state %q", p.Filter.State))
	}
	if p.Rate < 0 || math.IsNaN(p.Rate) || math.IsInf(p.Rate, 0) {
		errs = append(errs, fmt.Errorf("the rate is %v messages per second; give a number above 0, or 0 for no bound", p.Rate))
	}
	return errors.Join(append(errs, checkMaxRedrives(p.Filter))...)
}

// Redrive sends dead letters back at a limited rate. It survives the processes that drive it, because its whole state is
// in the store. It covers the dead letters that existed when it began, and leaves later ones alone, even of the same
// messages.
type Redrive struct {
	ID        int64        `json:"id"`
	Filter    Filter       `json:"filter"`
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

	// Outcome is the current outcome of the Done messages. ShowRedrive counts it; elsewhere it is nil.
	Outcome *Outcome `json:"outcome,omitempty"`

	// Failures counts consecutive failed steps; Cause is the cause of the last failure, "" when there are none.
	Failures int    `json:"failures,omitzero"`
	Cause    string `json:"cause,omitempty"`

	// Position is the number of the last dead letter processed, UpTo that of the last one to process. NextAt is when the
	// rate, or the wait after a failure, allows the next step.
	Position int64     `json:"position"`
	UpTo     int64     `json:"up_to"`
	NextAt   time.Time `json:"next_at,omitzero"`
}

// Outcome counts the messages that a redrive has sent back by what happened to them.
type Outcome struct {
	// Delivered are done, Waiting are parked, Failed have been dead-lettered again.
	Delivered int64 `json:"delivered"`
	Waiting   int64 `json:"waiting"`
	Failed    int64 `json:"failed"`
}

// Candidate is an open dead letter that a redrive considers sending back.
type Candidate struct {
	Number   int64
	Redrives int
}

const (
	// stepsPerSecond is how many steps per second a rate is spread over.
	stepsPerSecond = 4
	// longestWait limits the wait for an extremely low rate.
	longestWait = 100 * 365 * 24 * time.Hour
)

// batch is how many dead letters the next step of a redrive reads, at most limit.
func batch(r Redrive, limit int) int {
	if r.Rate == 0 {
		return limit
	}
	return max(1, int(min(float64(limit), r.Rate/stepsPerSecond)))
}

// take records a step of a redrive, at now, over these dead letters, and returns the numbers of those to send back.
func take(r *Redrive, letters []Candidate, now time.Time) []int64 {
	r.Failures, r.Cause, r.NextAt = 0, "", time.Time{}
	send := []int64{}
	for _, l := range letters {
		if r.Position = l.Number; allows(r.Filter, l.Redrives) {
			send = append(send, l.Number)
		}
	}
	r.Done += int64(len(send))
	r.Refused += int64(len(letters) - len(send))
	r.Selected = max(r.Selected, r.Done+r.Refused) // one was being written while they were counted
	if r.Rate > 0 {
		r.NextAt = now.Add(time.Duration(min(float64(len(send))/r.Rate*float64(time.Second), float64(longestWait))))
	}
	return send
}

// finish records that there are no more dead letters for a redrive: a step has found fewer than batch.
func finish(r *Redrive, now time.Time) {
	r.State, r.EndedAt, r.NextAt = RedriveFinished, now, time.Time{}
	r.Skipped = r.Selected - r.Done - r.Refused
}

// fail records that a step of a redrive has failed, and when the next may be tried; after MaxFailures in a row the redrive has failed.
// seen is Failures as it was before that step, so that a step that fails in several processes counts once. It reports whether
// anything has changed.
func fail(r *Redrive, seen int, cause string, now time.Time) bool {
	if r.State != RedriveRunning || r.Failures != seen {
		return false
	}
	r.Failures++
	r.Cause = cause
	if r.Failures >= MaxFailures {
		r.State, r.EndedAt, r.NextAt = RedriveFailed, now, time.Time{}
		return true
	}
	r.NextAt = now.Add(backoff(*r))
	return true
}

// The wait after a failed step doubles between these bounds.
const (
	retryMin = time.Second
	retryMax = time.Minute
)

func backoff(r Redrive) time.Duration {
	return min(retryMin<<min(max(r.Failures-1, 0), 10), retryMax)
}

// cancel records that someone has cancelled the redrive. Errors: ErrRedriveEnded.
func cancel(r *Redrive, by string, now time.Time) error {
	if r.State != RedriveRunning {
		return fmt.Errorf("redrive %d is %s: %w", r.ID, r.State, ErrRedriveEnded)
	}
	r.State, r.EndedAt, r.CancelledBy, r.NextAt = RedriveCancelled, now, by, time.Time{}
	return nil
}

// RedriveStore keeps redrives.
type RedriveStore interface {
	// StartRedrive records a redrive of the dead letters that exist now. It sends nothing back yet. Errors: those of
	// Plan.Validate; ErrNotFound, ErrResolved when the filter names Numbers and one of them is not open.
	StartRedrive(ctx context.Context, p Plan) (Redrive, error)
	// StepRedrive runs the next step of a running redrive, in one transaction that locks the redrive: it sends back up to
	// limit dead letters (0 means 1,000), as RedriveDead does, and stores the progress. It returns the redrive and the
	// time until its rate allows the next step; if that time has not come, it does nothing. Any number of processes may
	// call it for the same redrive: each dead letter is sent back once. A redrive that has ended is returned unchanged.
	// Errors: ErrNoRedrive.
	StepRedrive(ctx context.Context, id int64, limit int) (Redrive, time.Duration, error)
	// FailRedrive records that a step has failed, so that the next one waits and the cause is
	// visible. StepRedrive does not record it, because a failed step changes nothing. It returns the updated redrive.
	// Errors: ErrNoRedrive.
	FailRedrive(ctx context.Context, id int64, seen int, cause string) (Redrive, error)
	// CancelRedrive ends a running redrive; it does not undo what was sent back. Errors: ErrNoRedrive, ErrRedriveEnded.
	CancelRedrive(ctx context.Context, id int64, by string) (Redrive, error)
	// ShowRedrive returns one redrive. Errors: ErrNoRedrive.
	ShowRedrive(ctx context.Context, id int64) (Redrive, error)
	// ListRedrives yields the redrives of a state ("" for all), newest first.
	ListRedrives(ctx context.Context, state RedriveState) iter.Seq2[Redrive, error]
}
