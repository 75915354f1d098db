package saga

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga/internal/machine"
)

// NoTimeout lets an Await or an Ask wait forever.
const NoTimeout = machine.NoTimeout

// Step is a step of a saga whose data has type D: a Request, Local, Choose, Parallel, Each, Await, Ask or Child. Names have 1 to 48
// lower-case letters, digits, dots and hyphens, and are unique within a sequence. Functions of a step get the data and
// nothing else. They are pure: they read no clock and no database, since they may run again. If one panics, the step is
// stuck until an operator retries it.
type Step[D any] interface {
	build(*D) *machine.Step
}

// Request asks a participant to do something and waits for its answer. Before the pivot, a request that is refused, or not
// answered in time, turns the saga back: the steps that were done are undone, in reverse order.
type Request[D, C, R any] struct {
	Name string
	// OnlyIf skips the step if it returns false. Default: the step always runs.
	OnlyIf func(d D) bool
	// Step is what the participant does, see DefineStep. Required.
	Step StepDefinition[C, R]
	// Command makes the command from the data. Required.
	Command func(d D) C
	// Done takes the participant's reply into the data. Default: the reply is not needed.
	Done func(d *D, reply R)
	// Refused takes a refusal into the data, and the saga continues. Default: a refusal turns it back.
	Refused func(d *D, r Refusal)
	// Timeout is the time for the answer, counted from the publishing of the command. Default: Config.StepTimeout.
	Timeout time.Duration
	// Attempts is how often the command is sent, each time with the full Timeout, before the step counts as unknown.
	// Participants do a step once however often they are asked. Default: 1.
	Attempts int
	// Pivot: once this step is done, the saga does not turn back. At most one step on each way is a pivot.
	Pivot bool
}

func (r Request[D, C, R]) build(*D) *machine.Step {
	s := &machine.Step{
		Kind: machine.Request, Name: r.Name, OnlyIf: condition(r.OnlyIf), Message: r.Step.command.Type(), Topic: r.Step.command.Topic(),
		Timeout: r.Timeout, Attempts: r.Attempts, Pivot: r.Pivot, NoUndo: r.Step.noUndo, Refused: refusalOf(r.Refused),
		Invalid: r.Step.Validate(),
		Sample:  func() ([]byte, error) { var zero R; return r.Step.reply.Encode(zero) },
		Done: func(data any, payload []byte) error {
			var reply R
			if err := r.Step.reply.Decode(payload, &reply); err != nil {
				return fmt.Errorf("decode the reply: %w", err)
			}
			if r.Done != nil {
				r.Done(data.(*D), reply)
			}
			return nil
		},
	}
	if r.Command != nil {
		s.Command = func(data any) (*postrider.Message, error) { return r.Step.command.New(r.Command(*data.(*D))) }
	}
	return s
}

// Local is a step in the database of the saga: it runs in the transaction that records that it was done. Its functions have
// a context and a transaction of type Tx, that of the engine, and are tried again, with backoff, if they fail. A failed
// attempt is rolled back.
type Local[D, Tx any] struct {
	Name string
	// OnlyIf skips the step if it returns false. Default: the step always runs.
	OnlyIf func(d D) bool
	// Do does the step and may change the data. A Refuse error refuses the step. It must end within Config.LocalTimeout; other
	// messages of the same partition wait for it, so keep it short. Required.
	Do func(ctx context.Context, tx Tx, d *D) error
	// Undo undoes it. Before the pivot, it is required, unless the step is marked NoUndo.
	Undo func(ctx context.Context, tx Tx, d *D) error
	// NoUndo: there is nothing to undo.
	NoUndo bool
	// Refused takes a refusal into the data, and the saga continues. Default: a refusal turns it back.
	Refused func(d *D, r Refusal)
	// Attempts is how often Do is tried. After that, the saga turns back, or is stuck if the pivot is done. Default:
	// Config.LocalAttempts.
	Attempts int
	// Pivot: once this step is done, the saga does not turn back. At most one step on each way is a pivot.
	Pivot bool
}

func (l Local[D, Tx]) build(*D) *machine.Step {
	s := &machine.Step{
		Kind: machine.Local, Name: l.Name, OnlyIf: condition(l.OnlyIf), Undoes: l.Undo != nil, NoUndo: l.NoUndo,
		Refused: refusalOf(l.Refused), Attempts: l.Attempts, Pivot: l.Pivot, TxType: reflect.TypeFor[Tx](),
	}
	if l.Do != nil {
		s.Run = localFunc(l.Do)
	}
	if l.Undo != nil {
		s.RunUndo = localFunc(l.Undo)
	}
	return s
}

func localFunc[D, Tx any](f func(ctx context.Context, tx Tx, d *D) error) func(ctx context.Context, tx, data any) error {
	return func(ctx context.Context, tx, data any) error {
		return f(ctx, tx.(Tx), data.(*D)) // Register has compared the types
	}
}

// Choose runs one of several sequences: that of the first case whose condition is true. The choice is made once.
type Choose[D any] struct {
	Name string
	// OnlyIf skips the step if it returns false. Default: the step always runs.
	OnlyIf func(d D) bool
	// Cases are tried in order. If none applies, the step is skipped.
	Cases []Case[D]
}

// Case is a case of a Choose.
type Case[D any] struct {
	Name string
	// If says whether the case applies. Nil, for the last case only: it applies if no other does.
	If    func(d D) bool
	Steps []Step[D]
}

func (c Choose[D]) build(*D) *machine.Step {
	s := &machine.Step{Kind: machine.Choose, Name: c.Name, OnlyIf: condition(c.OnlyIf)}
	for _, k := range c.Cases {
		s.Cases = append(s.Cases, machine.Case{Name: k.Name, If: condition(k.If), Steps: built(k.Steps)})
	}
	return s
}

// Parallel starts several steps together and waits for all. If one is refused or unknown, the others are not awaited: all
// are undone. It contains no pivot.
type Parallel[D any] struct {
	Name string
	// OnlyIf skips the step if it returns false. Default: the step always runs.
	OnlyIf func(d D) bool
	Steps  []Step[D]
}

func (p Parallel[D]) build(*D) *machine.Step {
	return &machine.Step{Kind: machine.Parallel, Name: p.Name, OnlyIf: condition(p.OnlyIf), Branches: built(p.Steps)}
}

// Await waits for a signal: a message of type S that is sent to the instance with Signal. One that arrives before the step
// is kept. With TimedOut, it is a timer that a signal can end early.
type Await[D, S any] struct {
	Name string
	// OnlyIf skips the step if it returns false. Default: the step always runs.
	OnlyIf func(d D) bool
	// Signal defines the signal. No other Await of the saga has this type. Required.
	Signal postrider.Definition[S]
	// Received takes the signal into the data. Default: its data is not needed.
	Received func(d *D, signal S)
	// Timeout is how long the step waits; NoTimeout is forever. Required.
	Timeout time.Duration
	// TimedOut takes the timeout into the data, and the saga continues. Default: the timeout turns it back.
	TimedOut func(d *D)
}

func (a Await[D, S]) build(*D) *machine.Step {
	return &machine.Step{
		Kind: machine.Await, Name: a.Name, OnlyIf: condition(a.OnlyIf), Message: a.Signal.Type(), Timeout: a.Timeout,
		TimedOut: timeoutOf(a.TimedOut), Invalid: a.Signal.Validate(),
		Sample: func() ([]byte, error) {
			var zero S
			m, err := a.Signal.New(zero)
			if err != nil {
				return nil, err
			}
			return m.Payload, nil
		},
		Done: func(data any, payload []byte) error {
			signal, err := a.Signal.Decode(&postrider.Message{Type: a.Signal.Type(), SchemaVersion: a.Signal.SchemaVersion(), Payload: payload})
			if err != nil {
				return err
			}
			if a.Received != nil {
				a.Received(data.(*D), signal.Data)
			}
			return nil
		},
	}
}

// Ask lets a person decide: see AnswerAsk, and Operator.Questions for those that wait.
type Ask[D any] struct {
	Name string
	// OnlyIf skips the step if it returns false. Default: the step always runs.
	OnlyIf func(d D) bool
	// Question is what the person is shown. Required.
	Question func(d D) string
	// Options are the answers to choose from. Required.
	Options []string
	// Roles name who may answer. Package admin, which knows people's roles, refuses others; so do programs of your own that call
	// Engine.Operate. The engine knows no roles, and records the name and the role of the one who answered. A question keeps the roles with
	// which it was asked. Default: whoever may operate sagas.
	Roles []string
	// Answered takes the answer into the data. A Refuse error refuses the step. Default: the answer is only recorded.
	Answered func(d *D, a Answer) error
	// Timeout is how long the step waits; NoTimeout is forever. Required.
	Timeout time.Duration
	// TimedOut takes the timeout into the data, and the saga continues. Default: the timeout turns it back.
	TimedOut func(d *D)
}

func (a Ask[D]) build(*D) *machine.Step {
	s := &machine.Step{
		Kind: machine.Ask, Name: a.Name, OnlyIf: condition(a.OnlyIf), Options: a.Options, Roles: a.Roles, Timeout: a.Timeout,
		TimedOut: timeoutOf(a.TimedOut),
	}
	if a.Question != nil {
		s.Question = func(data any) string { return a.Question(*data.(*D)) }
	}
	if a.Answered != nil {
		s.Answered = func(data any, answer Answer) error { return a.Answered(data.(*D), answer) }
	}
	return s
}

// built returns steps with their types removed. A nil step stays nil, for the check to find.
func built[D any](steps []Step[D]) []*machine.Step {
	out := make([]*machine.Step, len(steps))
	for i, s := range steps {
		if s != nil {
			out[i] = s.build(nil)
		}
	}
	return out
}

func condition[D any](f func(D) bool) func(any) bool {
	if f == nil {
		return nil
	}
	return func(data any) bool { return f(*data.(*D)) }
}

func refusalOf[D any](f func(*D, Refusal)) func(any, Refusal) {
	if f == nil {
		return nil
	}
	return func(data any, r Refusal) { f(data.(*D), r) }
}

func timeoutOf[D any](f func(*D)) func(any) {
	if f == nil {
		return nil
	}
	return func(data any) { f(data.(*D)) }
}

// encode writes data as JSON, decode reads it.
func encode(data any) ([]byte, error) { return json.Marshal(data) }

func decode[D any](text []byte) (any, error) {
	d := new(D)
	if err := json.Unmarshal(text, d); err != nil {
		return nil, err
	}
	return d, nil
}
