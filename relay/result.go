package relay

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/attempt"
)

// result is a parsed error. Parsing calls the error's own methods, which may panic, so it is done once, outside every lock.
type result struct {
	failed   bool
	outcome  postrider.Outcome
	cause    string
	follows  bool // it failed only because a message before it did
	canceled bool
	// unhandled: no handler takes it. cut: the call was cut off by this process.
	unhandled, cut bool
	// discarded: the policy of its type discards it.
	discarded bool
	// timedOut: the call's time was up. broken: the call itself failed, which says nothing about any one message.
	timedOut, broken bool
	// unfinished, if not nil, is how to wait for the outcome.
	unfinished *attempt.UnfinishedError
}

// is reports whether the result is a failure of a kind.
func (v *result) is(kind postrider.OutcomeKind) bool { return v.failed && v.outcome.Kind == kind }

// results parses the errors of a call; nil means that all succeeded.
func (r *Relay) results(batch []*item, errs []error) []result {
	var out []result
	for i, err := range errs {
		if err == nil {
			continue
		}
		if out == nil {
			out = make([]result, len(errs))
		}
		out[i] = r.readResult(batch[i], err)
	}
	return out
}

func readError(err error) (v result) {
	defer func() {
		if p := recover(); p != nil {
			broken := newPanic(fmt.Sprintf("a method of the returned %T", err), p)
			v = result{failed: true, outcome: postrider.OutcomeOf(broken), cause: broken.Error()}
		}
	}()
	v = result{failed: true, outcome: postrider.OutcomeOf(err)}
	v.cause = attempt.CauseText(v.outcome.Err)
	if v.outcome.Err == nil && err.Error() != postrider.Dead(v.outcome.Reason, nil).Error() {
		v.cause = attempt.CauseText(err) // Snooze and Dead without a cause: what they are wrapped in says why
	}
	v.follows = errors.Is(err, postrider.ErrPredecessorFailed)
	v.canceled = errors.Is(err, context.Canceled)
	v.unhandled = v.outcome.Kind == postrider.Retried && errors.Is(err, postrider.ErrUnhandled)
	v.timedOut = errors.Is(err, context.DeadlineExceeded)
	_, v.broken = errors.AsType[*brokenCallError](err)
	v.unfinished, _ = errors.AsType[*attempt.UnfinishedError](err)
	return v
}

// brokenCallError is the failure of a call that says nothing about any one of its messages.
type brokenCallError struct{ err error }

func (e *brokenCallError) Error() string { return e.err.Error() }
func (e *brokenCallError) Unwrap() error { return e.err }

// PanicError is the failure of a handler or publisher that panicked.
type PanicError struct {
	Value any
	Stack string
}

func newPanic(where string, v any) *PanicError {
	return &PanicError{Value: fmt.Sprintf("%s: %v", where, v), Stack: string(debug.Stack())}
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }
