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
	// ErrNoRedrive: there is no redrive of this ID.
	ErrNoRedrive = errors.New("no such redrive")
	// ErrRedriveEnded: the redrive has finished, has failed or was cancelled.
	ErrRedriveEnded = errors.New("redrive has ended")
)

// RedriveState says how a redrive stands.
type RedriveState string

// The states of a redrive.
const (
	RedriveRunning   RedriveState = "running"
	RedriveFinished  RedriveState = "finished"
	RedriveCancelled RedriveState = "cancelled"
	RedriveFailed    RedriveState = "failed" // its steps failed MaxFailures times in a row
)

// MaxFailures is how many steps of a redrive may fail in a row. The wait after each doubles from a second to a minute, so that
// it takes about a quarter of an hour until the redrive has failed.
const MaxFailures = 20

// PurgeRedrives is how many ended redrives a store removes in one call of relay.Maintainer, which comes about once a minute.
const PurgeRedrives = 1_000

// Plan says what a redrive is to do.
type Plan struct {
	// Filter chooses the letters, which are open; its MaxRedrives says which are refused.
	Filter Filter
	// Rate is the most letters per second that are sent back, by all processes together; 0: as fast as the store takes them.
	Rate float64
	// By is who decided it, for the record.
	By string
}

// Validate reports what is wrong with a plan.
func (p Plan) Validate() error {
	var errs []error
	if p.Filter.State != "" && p.Filter.State != Open {
		errs = append(errs, fmt.Errorf("a redrive sends back open letters; the filter asks for state %q", p.Filter.State))
	}
	if p.Rate < 0 || math.IsNaN(p.Rate) || math.IsInf(p.Rate, 0) {
		errs = append(errs, fmt.Errorf("the rate is %v letters per second; give a number above 0, or 0 for no bound", p.Rate))
	}
	if p.Filter.MaxRedrives < Unbounded {
		errs = append(errs, fmt.Errorf("a message cannot have been sent back %d times", p.Filter.MaxRedrives))
	}
	return errors.Join(errs...)
}

// Redrive sends dead letters back, at a rate, and survives the processes that drive it: all that it is stands in the store.
// It concerns the letters that stood there when it began; what dies meanwhile, perhaps the same messages once more, is left
// alone.
type Redrive struct {
	ID        int64        `json:"id"`
	Filter    Filter       `json:"filter"`
	Rate      float64      `json:"rate,omitzero"`
	State     RedriveState `json:"state"`
	By        string       `json:"by"`
	StartedAt time.Time    `json:"started_at"`
	// EndedAt is when it finished, failed or was cancelled; CancelledBy by whom.
	EndedAt     time.Time `json:"ended_at,omitzero"`
	CancelledBy string    `json:"cancelled_by,omitempty"`

	// Selected letters were open when it began. Done are those that it has sent back; Refused those that were sent back too
	// often before, and stay open; Skipped, once it has finished, those that somebody else decided about before it came to
	// them.
	Selected int64 `json:"selected"`
	Done     int64 `json:"done"`
	Refused  int64 `json:"refused"`
	Skipped  int64 `json:"skipped"`

	// Outcome says what became of those that are Done. ShowRedrive counts it; elsewhere it is nil.
	Outcome *Outcome `json:"outcome,omitempty"`

	// Failures counts the steps that have failed since one succeeded, and Cause is why the last of them did: "" when there
	// are none.
	Failures int    `json:"failures,omitzero"`
	Cause    string `json:"cause,omitempty"`

	// Position is the number of the letter that it came to last, UpTo of the last one that concerns it. NextAt is when its
	// rate, or the wait after a failure, allows to go on.
	Position int64     `json:"position"`
	UpTo     int64     `json:"up_to"`
	NextAt   time.Time `json:"next_at,omitzero"`
}

// Outcome says what became of the messages that a redrive has sent back.
type Outcome struct {
	// Delivered are done, Waiting are parked, Failed have come back to the dead letters.
	Delivered int64 `json:"delivered"`
	Waiting   int64 `json:"waiting"`
	Failed    int64 `json:"failed"`
}

// ClaimRequest is an open letter that a redrive has come to.
type ClaimRequest struct {
	Number   int64
	Redrives int
}

const (
	// stepsPerSecond is how finely a rate is spread over a second.
	stepsPerSecond = 4
	// longestWait bounds the wait for a rate that is next to none.
	longestWait = 100 * 365 * 24 * time.Hour
)

// Batch is how many letters the next step looks at, at most limit. Stores call it.
func (r *Redrive) Batch(limit int) int {
	if r.Rate == 0 {
		return limit
	}
	return max(1, int(min(float64(limit), r.Rate/stepsPerSecond)))
}

// Take notes that a step came, at now, to these letters, and returns the numbers of those to send back. Stores call it, in
// the transaction that sends them back and stores the redrive.
func (r *Redrive) Take(letters []ClaimRequest, now time.Time) []int64 {
	r.Failures, r.Cause, r.NextAt = 0, "", time.Time{}
	send := []int64{}
	for _, l := range letters {
		if r.Position = l.Number; r.Filter.Allows(l.Redrives) {
			send = append(send, l.Number)
		}
	}
	r.Done += int64(len(send))
	r.Refused += int64(len(letters) - len(send))
	r.Selected = max(r.Selected, r.Done+r.Refused) // one was being written when they were counted
	if r.Rate > 0 {
		r.NextAt = now.Add(time.Duration(min(float64(len(send))/r.Rate*float64(time.Second), float64(longestWait))))
	}
	return send
}

// Finish notes that there are no more letters. Stores call it when a step has found fewer than Batch.
func (r *Redrive) Finish(now time.Time) {
	r.State, r.EndedAt, r.NextAt = RedriveFinished, now, time.Time{}
	r.Skipped = r.Selected - r.Done - r.Refused
}

// Fail notes that a step has failed, and when the next may be tried; after MaxFailures in a row the redrive has failed. Seen
// is what Failures was before that step: when several processes fail at one step, it counts once. Stores call it. It
// reports whether anything has changed.
func (r *Redrive) Fail(seen int, cause string, now time.Time) bool {
	if r.State != RedriveRunning || r.Failures != seen {
		return false
	}
	r.Failures++
	r.Cause = cause
	if r.Failures >= MaxFailures {
		r.State, r.EndedAt, r.NextAt = RedriveFailed, now, time.Time{}
		return true
	}
	r.NextAt = now.Add(r.backoff())
	return true
}

// The wait after a failed step doubles between these bounds.
const (
	retryMin = time.Second
	retryMax = time.Minute
)

func (r *Redrive) backoff() time.Duration {
	return min(retryMin<<min(max(r.Failures-1, 0), 10), retryMax)
}

// Cancel notes that somebody has ended it. Stores call it. Errors: ErrRedriveEnded.
func (r *Redrive) Cancel(by string, now time.Time) error {
	if r.State != RedriveRunning {
		return fmt.Errorf("redrive %d is %s: %w", r.ID, r.State, ErrRedriveEnded)
	}
	r.State, r.EndedAt, r.CancelledBy, r.NextAt = RedriveCancelled, now, by, time.Time{}
	return nil
}

// RedriveStore keeps redrives.
type RedriveStore interface {
	// StartRedrive notes a redrive of the letters that stand there now. Nothing is sent back yet. Errors: those of
	// Plan.Validate; ErrNotFound, ErrResolved when the filter names Numbers and one of them is not open.
	StartRedrive(ctx context.Context, p Plan) (Redrive, error)
	// StepRedrive does the next piece of work of a running redrive, in one transaction that locks the redrive: it sends back
	// up to limit letters (0 means 1,000), as RedriveDead does, and notes how far it has come. It returns the redrive and the
	// time until its rate allows the next step, in which case it may have done nothing. Any number of processes may call it
	// for the same redrive: each letter is sent back once. One that has ended is returned as it is. Errors: ErrNoRedrive.
	StepRedrive(ctx context.Context, id int64, limit int) (Redrive, time.Duration, error)
	// FailRedrive notes, as Redrive.Fail does, that a step of a redrive has failed, so that the next one is put off and the
	// cause can be seen. StepRedrive does not note it itself: a step that fails changes nothing. It returns the redrive as it
	// stands then. Errors: ErrNoRedrive.
	FailRedrive(ctx context.Context, id int64, seen int, cause string) (Redrive, error)
	// CancelRedrive ends a running redrive; what it has sent back stays so. Errors: ErrNoRedrive, ErrRedriveEnded.
	CancelRedrive(ctx context.Context, id int64, by string) (Redrive, error)
	// ShowRedrive returns one redrive. Errors: ErrNoRedrive.
	ShowRedrive(ctx context.Context, id int64) (Redrive, error)
	// ListRedrives yields the redrives of a state ("" for all), the latest first.
	ListRedrives(ctx context.Context, state RedriveState) iter.Seq2[Redrive, error]
}
