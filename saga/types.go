package saga

import (
	"github.com/postrider/postrider/saga/internal/machine"
	"github.com/postrider/postrider/store"
)

// Status is the status of an instance.
type Status = store.SagaStatus

// The statuses of an instance.
const (
	// Running: its steps run, one after another.
	Running = store.SagaRunning
	// Compensating: what was done is undone.
	Compensating = store.SagaCompensating
	// Stuck: an operator has to decide, e.g. because the undo of a step has used up its attempts.
	Stuck = store.SagaStuck
	// Completed: every step was done, skipped, or refused where that is allowed.
	Completed = store.SagaCompleted
	// Compensated: every step that was started is proved not to have happened, or is undone.
	Compensated = store.SagaCompensated
	// Abandoned: an operator ended it with obligations open; its history lists them.
	Abandoned = store.SagaAbandoned
)

// StepName returns the path of a step in its definition, for a step as entries of the history name it: without the item of an Each, and
// without the number of a step that was tried again.
func StepName(step string) string { return machine.StepName(step) }

// Refusal says why a participant refused a step.
type Refusal = machine.Refusal

// Answer is a person's answer to an Ask.
type Answer = machine.Answer

// Cause says why an instance turned back, or was ended by an operator.
type Cause = machine.Cause

// The kinds of a Cause.
const (
	CauseRefused   = machine.CauseRefused
	CauseTimedOut  = machine.CauseTimedOut
	CauseFailed    = machine.CauseFailed // a local step
	CauseCancelled = machine.CauseCancelled
	CauseOperator  = machine.CauseOperator
)

// Refuse refuses a step: it did not happen and will not. reason is short and the same for all refusals of a kind; err, which may be
// nil, says more.
func Refuse(reason string, err error) error {
	r := &machine.RefusalError{Refusal: Refusal{Reason: reason}, Err: err}
	if err != nil {
		r.Text = err.Error()
	}
	return r
}
