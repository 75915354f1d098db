package machine

import (
	"encoding/json"
	"time"

	"github.com/postrider/postrider"
)

// Input is what a transition handles. Exactly one of the pointers is set.
type Input struct {
	// Age is how long ago the instance started, by the clock of the database: below zero if that was set back, which counts as zero.
	Age time.Duration
	// Isolated: functions of the definition run on goroutines of their own, so that one that ends its goroutine (runtime.Goexit) leaves a
	// step that is stuck. Otherwise it ends the goroutine of Advance.
	Isolated bool
	// ReadUpTo is the age up to which the sources of a contract have been read: no later timeout is decided.
	ReadUpTo time.Duration
	// Event is one of a contract, Process the business process that it belongs to. Unidentified says why it is not known to which instance
	// it belongs; then this one is made for it alone.
	Event        *postrider.Message
	Process      string
	Unidentified string
	Start        *Start
	Reply        *Reply
	Timer        *Fired
	Signal       *Signal
	Verb         *Verb
	// Parent is what the instance wants that started this one.
	Parent *Wish
}

// Start begins an instance.
type Start struct{}

// Outcome is what a participant says about a step.
type Outcome string

// The outcomes.
const (
	OutcomeDone       Outcome = "done"
	OutcomeRefused    Outcome = "refused"
	OutcomeUndone     Outcome = "undone"
	OutcomeCannotUndo Outcome = "cannot-undo" // it is done, and there is no undo
	OutcomeNoRecord   Outcome = "no-record"   // nobody knows: the record has expired, or a child was abandoned
	OutcomeFailed     Outcome = "failed"      // of a local step: it is certain that this attempt had no effect
)

// Reply answers a command or an undo.
type Reply struct {
	// SentAs and Token are those of the command.
	SentAs, Token string
	Outcome       Outcome
	// Payload is the reply of a step that was done; also with OutcomeCannotUndo.
	Payload []byte
	Refusal Refusal
	// Unrecorded: it comes from a participant that keeps no records, so that a step can be done after it was undone. Attempt is that of the
	// command or undo, 0 if it does not say.
	Unrecorded bool
	Attempt    int
	// Data is the data as a local step has left it, those of its item if it belongs to one; nil for other steps.
	Data json.RawMessage
}

// Fired is the timer of an instance.
type Fired struct{ ID int64 }

// Signal is a message from outside that a step waits for.
type Signal struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Payload []byte `json:"payload,omitempty"`
}

// VerbKind is what an operator wants, or a program on behalf of one.
type VerbKind string

// The verbs. docs/sagas.md has a table of what each does in which status.
const (
	VerbRetry      VerbKind = "retry"
	VerbDone       VerbKind = "done"
	VerbUndone     VerbKind = "undone"
	VerbSkip       VerbKind = "skip"
	VerbCompensate VerbKind = "compensate"
	VerbComplete   VerbKind = "complete"
	VerbAbandon    VerbKind = "abandon"
	VerbCancel     VerbKind = "cancel"
	VerbPause      VerbKind = "pause"
	VerbResume     VerbKind = "resume"
	VerbEdit       VerbKind = "edit"
	VerbAnswer     VerbKind = "answer"
	VerbMigrate    VerbKind = "migrate"
)

// Verb is an operator's verb.
type Verb struct {
	Kind VerbKind `json:"kind"`
	// Step is the path of a step, for verbs about one.
	Step string `json:"step,omitzero"`
	// Rev is the revision on which the decision is based; 0 means any. If the instance has moved on, the verb is refused.
	Rev int64 `json:"rev,omitzero"`
	// Actor and Reason are recorded.
	Actor  string `json:"actor"`
	Reason string `json:"reason"`
	// Force compensates also past the pivot.
	Force bool `json:"force,omitzero"`
	// Option is the answer to an Ask. Role is the role in which it was given, which is recorded.
	Option string `json:"option,omitzero"`
	Role   string `json:"role,omitzero"`
	// Patch is a JSON merge patch (RFC 7396) of the data, for edit and done.
	Patch json.RawMessage `json:"patch,omitempty"`
	// To is the version that an instance migrates to, and From the definition that it has; nil if that is not known.
	To   int         `json:"to,omitzero"`
	From *Definition `json:"-"`
}

// Output is what a transition does besides changing the instance.
type Output struct {
	// Ignored: the input changes nothing and is not recorded, e.g. a timer that was replaced.
	Ignored bool
	// Refused says why a verb was refused; "" if it was not. A refused verb is recorded.
	Refused  string
	Commands []Command
	// Timer is set if a timer is to be set; it fires After the transition.
	Timer *TimerSet
	// Announcement is the message of the end. Reports are those of a contract's timeout and end.
	Announcement *postrider.Message
	Reports      []*postrider.Message
	// Answer is for the parent of an instance that has ended.
	Answer *Reply
	// Passed: the pivot is done.
	Passed bool
	Events []Event
}

// Command is a command or an undo to send.
type Command struct {
	Path, SentAs string
	Undo         bool
	// Local: the engine runs the step itself. It has no Message.
	Local   bool
	Attempt int
	// Seen and Since are those of the step's state.
	Seen  bool
	Since time.Duration
	// Child is the instance to start, or to undo; it has only an ID then. It has no Message.
	Child *ChildStart
	// Message has the type, the topic, the key if its definition gives one, and the payload of a command.
	Message *postrider.Message
	// Contract is the name of the contract, and Process the business process of the event, for the undo of one.
	Contract, Process string
}

// TimerSet is a timer to set.
type TimerSet struct {
	ID    int64
	After time.Duration
}

// Event is an entry of the history.
type Event struct {
	// What happened, e.g. "step.done".
	What string `json:"what"`
	Step string `json:"step,omitzero"`
	Note string `json:"note,omitzero"`
}

// Policy is what the machine takes from the engine's configuration. A running instance follows the policy of the process.
type Policy struct {
	// StepTimeout and UndoTimeout are the times for answers to commands and undos.
	StepTimeout, UndoTimeout time.Duration
	// UndoAttempts is how often an undo is sent before its step is stuck, LocalAttempts how often a local step is run.
	UndoAttempts, LocalAttempts int
	// StuckAfter is how long a step after the pivot stays unknown before it is stuck.
	StuckAfter time.Duration
	// BackoffBase and BackoffMax limit the wait before another attempt.
	BackoffBase, BackoffMax time.Duration
	// MaxSignals is how many early signals an instance keeps.
	MaxSignals int
	// MaxState is the largest size of the data, and that of the early signals together; 0 means no limit.
	MaxState int
	// MaxItems is the largest number of items of an Each; 0 means no limit.
	MaxItems int
	// Check says whether a message can be published; nil means that every one can.
	Check func(m *postrider.Message) error
}
