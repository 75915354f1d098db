package machine

import (
	"context"
	"reflect"
	"time"

	"github.com/postrider/postrider"
)

// Definition is a saga's definition with its types removed: the functions take the data as a pointer to the user's type.
type Definition struct {
	Name    string
	Version int
	// Deadline is the longest duration of an instance before its pivot; 0 means none.
	Deadline time.Duration
	Steps    []*Step
	// Decode returns a pointer to the data; Encode is its inverse.
	Decode func(json []byte) (any, error)
	Encode func(data any) ([]byte, error)
	// OnCompleted and OnCompensated build the message that announces the end; nil means none.
	OnCompleted, OnCompensated Builder

	hash   string
	byPath map[string]*Step
	order  []*Step // every step, in the order of the definition, parents before their children
}

// Builder makes a message from the data.
type Builder func(data any) (*postrider.Message, error)

// Kind is a kind of step.
type Kind string

// The kinds of steps.
const (
	Request  Kind = "request"
	Local    Kind = "local"
	Choose   Kind = "choose"
	Parallel Kind = "parallel"
	Await    Kind = "await"
	Ask      Kind = "ask"
)

// NoTimeout is a timeout that never ends.
const NoTimeout time.Duration = -1

// Step is a step of a definition. Which fields apply depends on its kind.
type Step struct {
	Kind Kind
	Name string
	// Path is the names from the root to the step, joined by slashes.
	Path string
	// OnlyIf skips the step if it returns false. Nil means that the step always runs.
	OnlyIf func(data any) bool
	// Pivot: once the step is done, the instance does not turn back.
	Pivot bool
	// NoUndo: the step needs no undo.
	NoUndo bool
	// Timeout is the time for an answer; 0 means the default, NoTimeout none. Attempts is how often the command is sent before
	// its step is unknown, or a local step run before it has failed; 0 means the default.
	Timeout  time.Duration
	Attempts int

	// Message is the type of the command, or of the signal that an Await waits for. Topic is that of the command.
	Message, Topic string
	// Command builds the command.
	Command Builder
	// Done takes the payload of a reply, or of the signal; an error means that it cannot be decoded.
	Done func(data any, payload []byte) error
	// Sample is a payload that Done accepts.
	Sample func() ([]byte, error)
	// Refused takes a refusal, and the instance continues. Nil: it turns back.
	Refused func(data any, r Refusal)
	// TimedOut takes the timeout of an Await or Ask, and the instance continues. Nil: it turns back.
	TimedOut func(data any)
	// Question is what an Ask shows; Answered takes the answer, which is one of Options. Its error refuses the step.
	Question       func(data any) string
	Options, Roles []string
	Answered       func(data any, a Answer) error
	// Run and RunUndo run a local step in a transaction. Undoes says whether it has an undo.
	Run, RunUndo func(ctx context.Context, tx, data any) error
	Undoes       bool
	// TxType is the type of the transactions of a local step.
	TxType reflect.Type
	// Invalid says what is wrong with the parts of the step that are not here.
	Invalid error

	Cases    []Case  // of a Choose
	Branches []*Step // of a Parallel
}

// Case is a case of a Choose. If is nil for the case that is taken if no other is.
type Case struct {
	Name  string
	If    func(data any) bool
	Steps []*Step
}

// Refusal says why a participant refused a step.
type Refusal struct {
	// Reason is short and the same for all refusals of a kind, e.g. "out of stock".
	Reason string `json:"reason"`
	// Text says more.
	Text string `json:"text,omitzero"`
}

// Answer is a person's answer to an Ask.
type Answer struct {
	Option string `json:"option"`
	// Actor is who answered, Reason what they said about it.
	Actor  string `json:"actor,omitzero"`
	Reason string `json:"reason,omitzero"`
}

// leaf says whether a step does something itself, instead of containing other steps.
func (s *Step) leaf() bool { return s.Kind != Choose && s.Kind != Parallel }

// chosen returns the steps of a case.
func (s *Step) chosen(name string) []*Step {
	for _, c := range s.Cases {
		if c.Name == name {
			return c.Steps
		}
	}
	return nil
}

// Step returns the step with a path, nil if there is none.
func (d *Definition) Step(path string) *Step { return d.byPath[path] }

// All returns every step in the order of the definition, parents before their children.
func (d *Definition) All() []*Step { return d.order }
