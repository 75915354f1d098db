package machine

import (
	"errors"

	"github.com/postrider/postrider/store"
)

// Action is what a participant does with a command or an undo.
type Action string

// The actions.
const (
	RunDo    Action = "do"        // run the handler
	RunUndo  Action = "undo"      // run the undo handler, with the command and the reply of the record
	Block    Action = "block"     // the step has not happened: make sure that it never will, and answer undone
	Repeat   Action = "repeat"    // answer what was answered before
	Refuse   Action = "refuse"    // answer refused: the step was undone before
	Undone   Action = "undone"    // answer undone: there is nothing to undo
	Cannot   Action = "cannot"    // answer cannot-undo, with the reply of the record
	NoRecord Action = "no-record" // answer no-record: the record may have been removed
	// BlockDone makes sure that the step never happens here, and answers no-record: it was done by hand, or its record is gone.
	BlockDone Action = "block-done"
	Settle    Action = "settle" // find out what the call did, which has the command of the record, and decide again
)

// Decide says what a participant does with a command, or an undo, in the transaction in which it has locked its record of the
// step. expired says that the command was first sent so long ago that a record of it may have been removed; seen, that the
// engine has seen the step done; undoes, that the participant has an undo handler.
func Decide(record store.SagaStepState, undo, undoes, seen, expired bool) Action {
	if undo {
		return decideUndo(record, undoes, seen, expired)
	}
	switch {
	case record == store.SagaStepUndone, record == store.SagaStepBlocked:
		return Refuse
	case record == store.SagaStepCalling:
		return RunDo
	case record != store.SagaStepNone:
		return Repeat
	case expired:
		return NoRecord
	default:
		return RunDo
	}
}

func decideUndo(record store.SagaStepState, undoes, seen, expired bool) Action {
	switch {
	case record == store.SagaStepDone && undoes:
		return RunUndo
	case record == store.SagaStepDone:
		return Cannot
	case record == store.SagaStepUndone:
		return Undone
	case record == store.SagaStepCalling:
		return Settle
	case record == store.SagaStepNone && seen && !expired:
		return BlockDone
	case seen: // nothing here was done, so somebody else did it
		return NoRecord
	case record != store.SagaStepNone:
		return Undone
	case expired:
		return NoRecord
	default:
		return Block
	}
}

// closedSuffix is what the type of the message that closes the record of a step adds to that of its command.
const closedSuffix = ".closed"

// ClosedType is the message type that says that a saga has ended and will not ask about the step of a command again.
func ClosedType(command string) string { return command + closedSuffix }

// Blocked is the reason of the refusal of a command that arrives after its undo.
const Blocked = "blocked"

// RefusalError is an error that refuses a step.
type RefusalError struct {
	Refusal
	Err error
}

// Error implements error.
func (e *RefusalError) Error() string {
	if e.Text == "" {
		return "refused: " + e.Reason
	}
	return "refused: " + e.Reason + ": " + e.Text
}

// Unwrap returns the cause.
func (e *RefusalError) Unwrap() error { return e.Err }

// NonRetryable says that another attempt has the same result: a breaker of package resilience does not count a refusal.
func (e *RefusalError) NonRetryable() bool { return true }

// RefusalOf returns the refusal that an error stands for; an error without one is a refusal by its text.
func RefusalOf(err error) Refusal {
	if r, ok := errors.AsType[*RefusalError](err); ok {
		return r.Refusal
	}
	return Refusal{Reason: "refused", Text: err.Error()}
}
