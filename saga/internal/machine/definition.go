package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider"
)

// Definition is a saga's definition with its types removed: the functions take the data as a pointer to the user's type.
type Definition struct {
	Name    string
	Version int
	// Deadline is the longest duration of an instance before its pivot; 0 means none.
	Deadline time.Duration
	Steps    []*Step
	// Key returns the key of an instance from its data; nil means that there is none.
	Key func(data any) string
	// Decode returns a pointer to the data; Encode is its inverse.
	Decode func(json []byte) (any, error)
	Encode func(data any) ([]byte, error)
	// Upgrade makes the data of an instance of another version those of this one; nil means that they are the same.
	Upgrade Upgrade
	// OnCompleted and OnCompensated build the message that announces the end; nil means none.
	OnCompleted, OnCompensated Builder

	hash   string
	each   bool // there are steps of kind Each
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
	Each     Kind = "each"
	Await    Kind = "await"
	Ask      Kind = "ask"
	Child    Kind = "child"
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

	// Child is what a Child starts, with the data that ChildData builds as JSON. Message is the name of that saga.
	Child     *Definition
	ChildData func(data any) (json.RawMessage, error)

	// Each are the steps of every item of an Each, List lists its items, and Join takes what they have become. At most Window items
	// are worked on at a time; 0 means the default. Codec is that of their data.
	Each   []*Step
	List   func(data any) ([]Item, error)
	Join   func(data any, items []any)
	Window int
	Codec  ItemCodec
	// Items are the steps of each item that an instance has listed, see Definition.For.
	Items [][]*Step
	// item is the one whose data the functions of the step take; nil: those of the instance.
	item      *Item
	itemCodec *ItemCodec
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
func (s *Step) leaf() bool { return s.Kind != Choose && s.Kind != Parallel && s.Kind != Each }

// owes says whether the step has to be undone once it is done.
func (s *Step) owes() bool {
	return (s.Kind == Request || s.Kind == Local || s.Kind == Child) && (s.Pivot || !s.NoUndo)
}

// maxKeyBytes is the largest size of a key.
const maxKeyBytes = 256

// KeyOf returns the key of an instance with these data, "" if there is none.
func (d *Definition) KeyOf(data any) (string, error) {
	if d.Key == nil {
		return "", nil
	}
	key := d.Key(data)
	if !utf8.ValidString(key) || strings.ContainsRune(key, 0) || len(key) > maxKeyBytes {
		return "", fmt.Errorf("the key must be UTF-8 without NUL, of at most %d bytes, is %q", maxKeyBytes, key)
	}
	return key, nil
}

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
