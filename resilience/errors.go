package resilience

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/postrider/postrider"
)

// Kinds of Error.
var (
	// ErrOpen: the breaker is open, and the function was not called.
	ErrOpen = errors.New("breaker is open")
	// ErrAtCapacity: the bulkhead has no room for another call.
	ErrAtCapacity = errors.New("too many calls at a time")
	// ErrRateLimited: the rate limit allows no further attempt now.
	ErrRateLimited = errors.New("rate limit reached")
	// ErrTimeout: the last attempt, or the call as a whole, took too long.
	ErrTimeout = errors.New("timed out")
	// ErrThrottled: the dependency asks to be called later than a call waits for.
	ErrThrottled = errors.New("asked to call later")
	// ErrExhausted: each of several attempts has failed.
	ErrExhausted = errors.New("attempts exhausted")
)

// Error is the failure of a call, except for one whose function was called once: that call returns the function's own error.
// errors.Is finds its Kind, and what
// is in Err.
//
// For a relay or consumer, a call that was not made is no attempt of the message: the message waits for RetryIn, as with
// postrider.UnavailableFor. Otherwise the outcome is that of Err.
type Error struct {
	Operation, Instance string
	// Kind is one of the errors above.
	Kind     error
	Attempts int
	// RetryIn is when a call may succeed again; 0: not known.
	RetryIn time.Duration
	// Err is the error of the last attempt, or of the call that opened the breaker; nil if there is none.
	Err error
}

// Error says which operation failed, how, and why.
func (e *Error) Error() string {
	text := e.Operation
	if e.Instance != "" {
		text += " (" + e.Instance + ")"
	}
	text += ": " + e.Kind.Error()
	if errors.Is(e.Kind, ErrExhausted) {
		text += fmt.Sprintf(" (%d)", e.Attempts)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns Kind and, unless the function was not called, Err.
func (e *Error) Unwrap() []error {
	if e.Err == nil || e.rejected() {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// rejected reports whether the function was not called.
func (e *Error) rejected() bool {
	return errors.Is(e.Kind, ErrOpen) || errors.Is(e.Kind, ErrAtCapacity) || errors.Is(e.Kind, ErrRateLimited)
}

// Outcome is what the error means for a message.
func (e *Error) Outcome() postrider.Outcome {
	if e.rejected() {
		wait := e.RetryIn + rand.N(e.RetryIn/5+1) // so that not all messages are handled at the same moment
		if wait < minWait {
			wait = minWait + rand.N(10*minWait)
		}
		return postrider.Outcome{Kind: postrider.BrokerUnavailable, After: wait, Err: e}
	}
	out := postrider.Outcome{Kind: postrider.Retried, After: e.RetryIn, Err: e}
	if inner := postrider.OutcomeOf(e.Err); inner.Kind != postrider.Delivered && inner.Kind != postrider.Retried {
		out.Kind, out.After, out.Reason = inner.Kind, max(inner.After, e.RetryIn), inner.Reason
	}
	return out
}

// minWait is the least wait of a message whose call was not made.
const minWait = 50 * time.Millisecond

// declinedError is an error of Decline.
type declinedError struct{ err error }

// Decline marks an error as an answer of the dependency: it works, and does not do what was asked for, e.g. because a card has no
// funds. A declined call is not repeated, and does not count against the breaker. In the handler of a message, an error that says
// nothing else dead-letters the message, with the reason "declined".
func Decline(err error) error {
	if err == nil {
		err = errors.New("declined")
	}
	return &declinedError{err}
}

func (e *declinedError) Error() string { return e.err.Error() }
func (e *declinedError) Unwrap() error { return e.err }

// NonRetryable says that another attempt has the same result.
func (e *declinedError) NonRetryable() bool { return true }

// Outcome is that of the error, unless it has none.
func (e *declinedError) Outcome() postrider.Outcome {
	out := postrider.OutcomeOf(e.err)
	if out.Kind == postrider.Retried && out.After == 0 {
		out.Kind, out.Reason = postrider.DeadLettered, "declined"
	}
	return out
}
