package saga

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga/internal/machine"
)

// Verb is what an operator, or a program for its user, wants of an instance.
type Verb string

// The verbs. docs/sagas.md says what each does in which status.
const (
	// Retry tries again what is stuck: the step, or every step if none is named. Attempts are counted from 1 again.
	Retry = Verb(machine.VerbRetry)
	// Done records a step as done, because somebody did it by hand. Patch may change the data accordingly.
	Done = Verb(machine.VerbDone)
	// Undone records a step as undone, because somebody undid it by hand.
	Undone = Verb(machine.VerbUndone)
	// Skip continues without a step; if its command was sent, its undo is confirmed first. When the saga compensates, it
	// releases the obligation of a step whose undo is stuck, and the instance ends abandoned.
	Skip = Verb(machine.VerbSkip)
	// Compensate turns the instance back; with Force, also past the pivot.
	Compensate = Verb(machine.VerbCompensate)
	// Complete ends an instance that is stuck as completed.
	Complete = Verb(machine.VerbComplete)
	// Abandon ends the instance with its obligations open.
	Abandon = Verb(machine.VerbAbandon)
	// Cancel turns the instance back, if the pivot is not done.
	Cancel = Verb(machine.VerbCancel)
	// Pause stops sending, Resume continues. Replies are applied meanwhile, and the time of steps and deadline stands still.
	Pause  = Verb(machine.VerbPause)
	Resume = Verb(machine.VerbResume)
	// Edit changes the data by Patch. The history has the original.
	Edit = Verb(machine.VerbEdit)
	// AnswerAsk answers an Ask with Option.
	AnswerAsk = Verb(machine.VerbAnswer)
	// Migrate lets the instance continue with another version of its definition, To, in which everything that it has reached is
	// the same. Its data go through the Upgrade of that version.
	Migrate = Verb(machine.VerbMigrate)
)

// Operation is a verb with what it needs.
type Operation struct {
	Verb Verb
	// Step is the path of a step, e.g. "pay/card/charge", for verbs about one.
	Step string
	// Rev is the revision of the instance on which the decision is based, see Result.Rev. If the instance has moved on, the
	// operation is refused. Default: any.
	Rev int64
	// Actor is who decided, Reason why. Both are required and recorded.
	Actor, Reason string
	// Force compensates also past the pivot.
	Force bool
	// Option is the answer to an Ask. Role is the role in which the Actor answers: the history has it, and the engine does not check it.
	Option, Role string
	// Patch is a JSON merge patch (RFC 7396) of the data, for Edit and Done.
	Patch json.RawMessage
	// To is the version that Migrate leads to.
	To int
}

// maxText is the largest size of a key, an actor and the path of a step.
const maxText = 256

// storable says whether every database can store a text.
func storable(text string) bool { return utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 }

// Operate asks for an operation on the instance with an ID, in the transaction tx, and returns the operation's ID. Operations are
// messages, so any process can ask for them. Those on an instance happen in the order in which they are committed, except Migrate; they do
// not wait for its other messages. The instance's history has what became of it: see Outcome. Errors: a missing Actor, Reason or Verb; an
// invalid Actor, Reason, Step or Role; those of outbox.Publish.
func (e *Engine[Tx]) Operate(ctx context.Context, tx Tx, id string, o Operation) (operation string, err error) {
	m, err := o.message(e.cfg.Name, id)
	if err != nil {
		return "", err
	}
	if _, err := e.box.Publish(ctx, tx, m); err != nil {
		return "", err
	}
	return m.ID, nil
}

// message is the message that asks an engine for the operation.
func (o Operation) message(engine, id string) (*postrider.Message, error) {
	if o.Verb == "" || o.Actor == "" || o.Reason == "" {
		return nil, fmt.Errorf("saga: an operation on instance %s needs a Verb, an Actor and a Reason", id)
	}
	if (o.Verb == Migrate) != (o.To > 0) {
		return nil, fmt.Errorf("saga: an operation on instance %s needs To, a version, if it is to migrate, and only then", id)
	}
	for name, text := range map[string]string{"Actor": o.Actor, "Step": o.Step, "Role": o.Role, "Reason": o.Reason} {
		if !storable(text) || name != "Reason" && len(text) > maxText {
			return nil, fmt.Errorf("saga: the %s of an operation on instance %s must be UTF-8 without NUL; Actor, Step and Role have at most %d bytes", name, id, maxText)
		}
	}
	m, err := verbMessage(engine, id, o.verb())
	if err != nil {
		return nil, fmt.Errorf("saga: operation on instance %s: %w", id, err)
	}
	return m, nil
}

func (o Operation) verb() machine.Verb {
	return machine.Verb{
		Kind: machine.VerbKind(o.Verb), Step: o.Step, Rev: o.Rev, Actor: o.Actor, Reason: o.Reason, Force: o.Force, Option: o.Option, Role: o.Role, Patch: o.Patch,
		To: o.To,
	}
}

// Outcome says what has become of an operation.
type Outcome struct {
	// Handled: the instance has handled it, in the transition with this Rev.
	Handled bool
	Rev     int64
	// Refused says why it was refused; "" if it was not.
	Refused string
}

// Outcome returns what has become of the operation that Operate returned. Errors: ErrNotFound; those of the store.
func (e *Engine[Tx]) Outcome(ctx context.Context, id, operation string) (Outcome, error) {
	return NewOperator(e.store).Outcome(ctx, id, operation)
}
