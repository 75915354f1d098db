package resilience

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/postrider/postrider"
)

// Class is what the end of a call means for the breaker and for further attempts. The first row that matches applies:
//
//	class     | which                                               | breaker, closed | breaker, half-open              | repeated
//	Rejected  | a breaker or limit said no, also of a nested call   | not counted     | makes room for another probe    | no
//	Cancelled | the caller's context ended first                    | not counted     | makes room for another probe    | no
//	Throttled | an error with a wait: postrider.Retry with a time,  | failure         | opens, at least for the wait    | yes, after the wait
//	          | postrider.UnavailableFor, RetryAfterer              |                 |                                 |
//	Declined  | Decline, postrider.Dead, Discard and Snooze, and    | not counted     | success: the dependency answers | no
//	          | errors with a method NonRetryable() bool            |                 |                                 |
//	Failure   | any other error, a timeout, a panic                 | failure         | opens                           | yes
//	Success   | no error                                            | success         | success                         | no
type Class int

// The classes. Unclassified is for Config.Classify only.
const (
	Unclassified Class = iota
	Success
	Failure
	Throttled
	Declined
	Cancelled
	Rejected
)

// String is the class in one word.
func (c Class) String() string {
	if c >= Unclassified && c <= Rejected {
		return [...]string{"unclassified", "success", "failure", "throttled", "declined", "cancelled", "rejected"}[c]
	}
	return "Class(" + strconv.Itoa(int(c)) + ")"
}

// RetryAfterer is an error that says when the dependency wants to be called again.
type RetryAfterer interface {
	error
	RetryAfter() time.Duration
}

// nonRetryable is an error that says that another attempt has the same result.
type nonRetryable interface {
	error
	NonRetryable() bool
}

// classify returns the class of the end of a call, and the wait that the dependency asks for. ctx is the caller's.
func (o *Operation) classify(ctx context.Context, err error) (c Class, wait time.Duration) {
	if err == nil {
		return Success, 0
	}
	if e, ok := errors.AsType[*Error](err); ok && e.rejected() {
		return Rejected, e.RetryIn
	}
	if ctx.Err() != nil {
		return Cancelled, 0
	}
	if o.set.cfg.Classify != nil {
		c = o.set.cfg.Classify(err)
	}
	wait = waitOf(err)
	switch {
	case c != Unclassified:
		return c, wait
	case wait > 0:
		return Throttled, wait
	case declined(err):
		return Declined, 0
	}
	return Failure, 0
}

// waitOf returns the wait that an error asks for.
func waitOf(err error) time.Duration {
	if r, ok := errors.AsType[RetryAfterer](err); ok {
		return r.RetryAfter()
	}
	switch o := postrider.OutcomeOf(err); o.Kind {
	case postrider.Retried, postrider.BrokerUnavailable:
		return o.After
	default:
		return 0
	}
}

func declined(err error) bool {
	if n, ok := errors.AsType[nonRetryable](err); ok && n.NonRetryable() {
		return true
	}
	switch postrider.OutcomeOf(err).Kind {
	case postrider.DeadLettered, postrider.Discarded, postrider.Snoozed:
		return true
	default:
		return false
	}
}
