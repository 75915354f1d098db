package deadletter

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/postrider/postrider/internal/drive"
	"github.com/postrider/postrider/store"
)

// Plan describes a redrive to start.
type Plan struct {
	// Filter selects open dead letters; its MaxRedrives says which are refused.
	Filter store.DeadFilter
	// Rate is the maximum number of dead letters sent back per second, by all processes together; 0: as fast as the store
	// allows.
	Rate float64
	// First sends one message, and the others when it was delivered. If it fails, or is not delivered in five minutes, the redrive stops.
	First bool
	// StopAt stops the redrive when more than this share of at least 20 first attempts fail: 0.05 is 5%. 0: nothing stops it.
	StopAt float64
	// By is who decided it, for the record.
	By string
	// UpTo is the highest number of a dead letter that is sent back; 0: the highest that exists when the redrive begins.
	UpTo int64
}

// Allows says whether the plan sends back a message that has been redriven this often.
func (p Plan) Allows(redrives int) bool { return allows(p.Filter, redrives) }

// Validate reports the errors in a plan.
func (p Plan) Validate() error {
	var errs []error
	if p.Filter.State != "" && p.Filter.State != store.DeadOpen {
		errs = append(errs, fmt.Errorf("a redrive sends back open dead letters; the filter asks for state %q", p.Filter.State))
	}
	if p.Rate < 0 || math.IsNaN(p.Rate) || math.IsInf(p.Rate, 0) {
		errs = append(errs, fmt.Errorf("the rate is %v messages per second; give a number above 0, or 0 for no bound", p.Rate))
	}
	return errors.Join(append(errs, checkGuard(p.StopAt), checkMaxRedrives(p.Filter))...)
}

const (
	// stepsPerSecond is how many steps per second a rate is spread over.
	stepsPerSecond = 4
	// longestWait limits the wait for an extremely low rate.
	longestWait = 100 * 365 * 24 * time.Hour
)

// batch is how many dead letters the next step of a redrive reads, at most limit.
func batch(r store.Redrive, limit int) int {
	if r.Rate == 0 {
		return limit
	}
	return max(1, int(min(float64(limit), r.Rate/stepsPerSecond)))
}

// take records a step of a redrive, at now, over these dead letters, and returns the numbers of those to send back.
func take(r *store.Redrive, open []store.OpenDead, now time.Time) []int64 {
	r.Failures, r.Cause, r.NextAt = 0, "", time.Time{}
	send := []int64{}
	for _, l := range open {
		if r.Position = l.Number; allows(r.Filter, l.Redrives) {
			send = append(send, l.Number)
		}
	}
	r.Done += int64(len(send))
	r.Refused += int64(len(open) - len(send))
	r.Selected = max(r.Selected, r.Done+r.Refused) // one was being written while they were counted
	if r.Rate > 0 {
		r.NextAt = now.Add(time.Duration(min(float64(len(send))/r.Rate*float64(time.Second), float64(longestWait))))
	}
	return send
}

// finish records that there are no more dead letters for a redrive: a step has found fewer than batch.
func finish(r *store.Redrive, now time.Time) {
	r.State, r.EndedAt, r.NextAt = store.RedriveFinished, now, time.Time{}
	r.Skipped = r.Selected - r.Done - r.Refused
}

// fail records that a step of a redrive has failed, and when the next may be tried; after store.MaxRedriveFailures in a row the
// redrive has failed. seen is Failures as it was before that step, so that a step that fails in several processes counts once. It
// reports whether anything has changed.
func fail(r *store.Redrive, seen int, cause string, now time.Time) bool {
	if r.State != store.RedriveRunning || r.Failures != seen {
		return false
	}
	r.Failures++
	r.Cause = cause
	if r.Failures >= store.MaxRedriveFailures {
		r.State, r.EndedAt, r.NextAt = store.RedriveFailed, now, time.Time{}
		return true
	}
	r.NextAt = now.Add(drive.Backoff(r.Failures))
	return true
}

// cancel records that someone has cancelled the redrive. Errors: ErrRedriveEnded.
func cancel(r *store.Redrive, by string, now time.Time) error {
	if r.State != store.RedriveRunning {
		return fmt.Errorf("redrive %d is %s: %w", r.ID, r.State, ErrRedriveEnded)
	}
	r.State, r.EndedAt, r.CancelledBy, r.NextAt = store.RedriveCancelled, now, by, time.Time{}
	return nil
}
