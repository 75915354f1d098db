package postrider

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// OutcomeKind says what is to become of a message.
type OutcomeKind int

// The outcomes of a delivery.
const (
	// Delivered: done with.
	Delivered OutcomeKind = iota
	// Retried: the attempt counts, and another follows after Outcome.After (or, if that is 0, after the backoff).
	Retried
	// Snoozed: put off for Outcome.After; no attempt counted.
	Snoozed
	// DeadLettered: no further attempt; the message goes to the dead letters.
	DeadLettered
	// BrokerUnavailable: nothing is wrong with the message; the destination as a whole cannot be reached.
	BrokerUnavailable
)

// String is the outcome in one word, as operators read it.
func (k OutcomeKind) String() string {
	switch k {
	case Delivered:
		return "delivered"
	case Retried:
		return "retried"
	case Snoozed:
		return "snoozed"
	case DeadLettered:
		return "dead"
	case BrokerUnavailable:
		return "unavailable"
	default:
		return "OutcomeKind(" + strconv.Itoa(int(k)) + ")"
	}
}

// Outcome is the meaning of an error that a handler or publisher returned.
type Outcome struct {
	Kind OutcomeKind
	// After is the wait that the handler asked for; 0 means none was asked for.
	After time.Duration
	// Reason is what Dead was given.
	Reason string
	// Err is the cause; nil for Delivered, and for Snooze and Dead without one.
	Err error
}

// OutcomeOf reads a handler's or publisher's error, also through wrapping. A nil error is Delivered, an error that none
// of this package's verbs made is Retried.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Outcome{Kind: Delivered}
	}
	if v, ok := errors.AsType[*verdict](err); ok {
		o := v.outcome
		if o.Err != nil {
			o.Err = err
		}
		return o
	}
	return Outcome{Kind: Retried, Err: err}
}

// Retry asks for another attempt after a wait. The attempt counts, and after Config.MaxAttempts the message is dead all
// the same. A wait that is not positive means the relay's own backoff.
func Retry(after time.Duration, err error) error {
	return &verdict{Outcome{Kind: Retried, After: max(after, 0), Err: cause(err, "retry asked for")}}
}

// Snooze puts the message off for a time without counting an attempt. A snoozed message with a key holds its key, since
// its followers must not overtake it. A time that is not positive means one second.
func Snooze(after time.Duration) error {
	if after <= 0 {
		after = time.Second
	}
	return &verdict{Outcome{Kind: Snoozed, After: after}}
}

// Dead sends the message to the dead letters at once, with a reason that an operator understands.
func Dead(reason string, err error) error {
	return &verdict{Outcome{Kind: DeadLettered, Reason: reason, Err: err}}
}

// Unavailable reports that the destination as a whole cannot be reached, so that every other message would fail too.
// The relay opens its circuit: no attempt is counted, nothing is parked, and one probe at a time finds out when it is
// back.
func Unavailable(err error) error {
	return &verdict{Outcome{Kind: BrokerUnavailable, Err: cause(err, "destination unavailable")}}
}

// verdict is an Outcome on its way through an error value.
type verdict struct{ outcome Outcome }

func (v *verdict) Error() string {
	o := v.outcome
	switch o.Kind {
	case Snoozed:
		return fmt.Sprintf("snoozed for %s", o.After)
	case DeadLettered:
		if o.Err == nil {
			return "dead: " + o.Reason
		}
		return fmt.Sprintf("dead: %s: %v", o.Reason, o.Err)
	case BrokerUnavailable:
		return fmt.Sprintf("unavailable: %v", o.Err)
	default:
		return o.Err.Error()
	}
}

func (v *verdict) Unwrap() error { return v.outcome.Err }

func cause(err error, text string) error {
	if err == nil {
		return errors.New(text)
	}
	return err
}
