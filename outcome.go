package postrider

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// OutcomeKind says what happens to a message.
type OutcomeKind int

// The outcomes of a delivery.
const (
	// Delivered: the message is done.
	Delivered OutcomeKind = iota
	// Retried: the attempt counts; the next one follows after Outcome.After, or after the backoff if that is 0.
	Retried
	// Snoozed: postponed by Outcome.After; the attempt does not count.
	Snoozed
	// DeadLettered: no further attempt; the message moves to the dead letters, and waits there for an operator.
	DeadLettered
	// Discarded: no further attempt; the message moves to the dead letters, where it is on record as discarded.
	Discarded
	// BrokerUnavailable: nothing is wrong with the message; the whole destination cannot be reached.
	BrokerUnavailable
)

// String is the outcome in one word, for operators.
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
	case Discarded:
		return "discarded"
	case BrokerUnavailable:
		return "unavailable"
	default:
		return "OutcomeKind(" + strconv.Itoa(int(k)) + ")"
	}
}

// Outcome is the meaning of an error that a handler or publisher returned.
type Outcome struct {
	Kind OutcomeKind
	// After is the wait that the handler asked for; 0 means none.
	After time.Duration
	// Reason is the reason passed to Dead or Discard.
	Reason string
	// Err is the cause; nil for Delivered, and for Snooze, Dead and Discard without one.
	Err error
}

// OutcomeError is an error that says what becomes of its message, as those of Retry, Snooze, Dead, Discard and Unavailable do.
type OutcomeError interface {
	error
	Outcome() Outcome
}

// OutcomeOf returns the outcome that a handler's or publisher's error stands for, also when wrapped: then Outcome.Err is the
// whole error. A nil error is Delivered; an error that is no OutcomeError is Retried.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Outcome{Kind: Delivered}
	}
	if v, ok := errors.AsType[OutcomeError](err); ok {
		o := v.Outcome()
		if _, direct := err.(*outcomeError); !direct && o.Err != nil {
			o.Err = err // with what it is wrapped in; the error of Dead itself would repeat the reason
		}
		return o
	}
	return Outcome{Kind: Retried, Err: err}
}

// Retry asks for another attempt after a wait. The attempt counts, and after Config.MaxAttempts the message is
// dead-lettered. If after is not positive, the relay's own backoff applies.
func Retry(after time.Duration, err error) error {
	return &outcomeError{Outcome{Kind: Retried, After: max(after, 0), Err: cause(err, "retry asked for")}}
}

// Snooze postpones the message without counting an attempt. A snoozed message with a key holds its key, since the
// messages after it must not overtake it. If after is not positive, it is one second.
func Snooze(after time.Duration) error {
	if after <= 0 {
		after = time.Second
	}
	return &outcomeError{Outcome{Kind: Snoozed, After: after}}
}

// Dead dead-letters the message at once, with a reason for the operator.
func Dead(reason string, err error) error {
	return &outcomeError{Outcome{Kind: DeadLettered, Reason: reason, Err: err}}
}

// Discard drops the message: nobody has to decide about it, and the next messages of its key follow, also where a dead letter
// holds the key. The message stays on record: it is a dead letter in the state "discarded", with the reason and the error, and is
// counted, shown and exported as such. What the handler did in its transaction is undone.
func Discard(reason string, err error) error {
	return &outcomeError{Outcome{Kind: Discarded, Reason: reason, Err: err}}
}

// Unavailable reports that the whole destination cannot be reached, so that every other message would fail too. The relay
// opens its circuit: it counts no attempt, parks nothing, and sends one probe at a time until the destination is back.
func Unavailable(err error) error {
	return &outcomeError{Outcome{Kind: BrokerUnavailable, Err: cause(err, "destination unavailable")}}
}

// UnavailableFor is Unavailable with a wait: a handler's message is tried again after it, and a relay with a publisher does not
// probe before.
func UnavailableFor(after time.Duration, err error) error {
	return &outcomeError{Outcome{Kind: BrokerUnavailable, After: max(after, 0), Err: cause(err, "destination unavailable")}}
}

// ErrUnhandled says that this process does not handle a message's type or schema version. A process of a newer release may:
// the message is parked as unhandled, with its key held, and the attempt does not count. Relays and consumers find it by
// themselves; a handler of many types may return it too, also wrapped.
var ErrUnhandled = errors.New("no handler takes the message")

// outcomeError carries an Outcome in an error value.
type outcomeError struct{ outcome Outcome }

func (v *outcomeError) Error() string {
	o := v.outcome
	switch o.Kind {
	case Snoozed:
		return fmt.Sprintf("snoozed for %s", o.After)
	case DeadLettered, Discarded:
		if o.Err == nil {
			return o.Kind.String() + ": " + o.Reason
		}
		return fmt.Sprintf("%s: %s: %v", o.Kind, o.Reason, o.Err)
	case BrokerUnavailable:
		return fmt.Sprintf("unavailable: %v", o.Err)
	default:
		return o.Err.Error()
	}
}

func (v *outcomeError) Unwrap() error { return v.outcome.Err }

// Outcome implements OutcomeError.
func (v *outcomeError) Outcome() Outcome { return v.outcome }

func cause(err error, text string) error {
	if err == nil {
		return errors.New(text)
	}
	return err
}
