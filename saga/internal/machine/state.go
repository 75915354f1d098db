package machine

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/store"
)

// Instance is one run of a saga.
type Instance struct {
	ID string `json:"id"`
	// Run is random: a later instance of the same ID has another.
	Run string `json:"run"`
	// Rev counts the transitions.
	Rev   int64           `json:"rev"`
	State State           `json:"state"`
	Data  json.RawMessage `json:"data"`
}

// State is what the machine remembers about an instance. Times are durations since its start.
type State struct {
	// Token is a secret that replies must echo; it is stored by itself. Input is a hash of the data at the start.
	Token string `json:"-"`
	Input string `json:"input,omitzero"`
	// Back is the direction: the steps are being undone, since TurnedAt. Forced: also past the pivot.
	Back     bool          `json:"back,omitzero"`
	TurnedAt time.Duration `json:"turned_at,omitzero"`
	Forced   bool          `json:"forced,omitzero"`
	// Ended is the final status, "" before the end.
	Ended Status `json:"ended,omitzero"`
	Cause *Cause `json:"cause,omitzero"`
	// Parent is the instance that started this one; nil if none did.
	Parent *Parent `json:"parent,omitzero"`
	// Paused is set while nothing is sent; PausedAt is since when.
	Paused   bool          `json:"paused,omitzero"`
	PausedAt time.Duration `json:"paused_at,omitzero"`
	Deadline time.Duration `json:"deadline,omitzero"` // 0: none, or over
	Timer    Timer         `json:"timer,omitzero"`
	// Steps are the steps that were started or skipped, by path.
	Steps map[string]*StepState `json:"steps,omitempty"`
	// Signals arrived before a step waited for them. Consumed are the IDs of those that a step has taken.
	Signals  []Signal `json:"signals,omitempty"`
	Consumed []string `json:"consumed,omitempty"`
	// EndedAt, Items and Process are those of a contract's instance: when it ended, the items of events by name, and the identity
	// of the business process that its first event belongs to.
	EndedAt time.Duration       `json:"ended_at,omitzero"`
	Items   map[string][]string `json:"items,omitempty"`
	Process string              `json:"process,omitzero"`
}

// Timer is the one wake-up that an instance has outstanding; At is 0 if there is none. IDs count up.
type Timer struct {
	ID int64         `json:"id"`
	At time.Duration `json:"at"`
}

// Status is the status of an instance.
type Status = store.SagaStatus

// The statuses of an instance.
const (
	Running      = store.SagaRunning
	Compensating = store.SagaCompensating
	Stuck        = store.SagaStuck
	Completed    = store.SagaCompleted
	Compensated  = store.SagaCompensated
	Abandoned    = store.SagaAbandoned
)

// CauseKind is the kind of a Cause.
type CauseKind string

// Why an instance turned back or ended early.
const (
	CauseRefused   CauseKind = "refused"
	CauseTimedOut  CauseKind = "timed out"
	CauseFailed    CauseKind = "failed"
	CauseCancelled CauseKind = "cancelled"
	CauseOperator  CauseKind = "operator"
)

// Cause says why an instance turned back or was ended by an operator.
type Cause struct {
	Kind CauseKind `json:"kind"`
	// Step is the path of the step that was refused, timed out or failed; "" for the deadline and for operators.
	Step string `json:"step,omitzero"`
	// Reason and Text are those of a refusal; Reason is an operator's reason otherwise.
	Reason string `json:"reason,omitzero"`
	Text   string `json:"text,omitzero"`
}

// StepStatus is the status of a step.
type StepStatus string

// The statuses of a step. One that was not started has none.
const (
	StepWaiting  StepStatus = "waiting"  // for an answer, a signal or a person
	StepDone     StepStatus = "done"     // it happened
	StepRefused  StepStatus = "refused"  // it is certain that it did not happen and will not
	StepUnknown  StepStatus = "unknown"  // nobody knows yet
	StepUndoing  StepStatus = "undoing"  // its undo was sent
	StepUndone   StepStatus = "undone"   // undone, or blocked before it happened
	StepSkipped  StepStatus = "skipped"  // its condition was false, its instance turned back before it did anything, or an operator skipped it
	StepStuck    StepStatus = "stuck"    // an operator decides
	StepReleased StepStatus = "released" // an operator released its obligation
)

// StepState is what the machine remembers about a step that was started.
type StepState struct {
	Status StepStatus `json:"status"`
	// Owed is the open obligation: the step may have happened, and is neither refused nor undone.
	Owed bool `json:"owed,omitzero"`
	// Seen: the engine has seen that the step was done.
	Seen bool `json:"seen,omitzero"`
	// Attempt counts the commands, or the undos, that were sent.
	Attempt int `json:"attempt,omitzero"`
	// Before is the number of the last command or undo that was sent under the same name before Attempt began from 1 again: an operator
	// retried the command, or the step had another effect. What Attempt counts has the number Before + Attempt.
	Before int `json:"before,omitzero"`
	// Effects are the attempts of the command that its participant, which keeps no records, has said are done.
	Effects []int `json:"effects,omitempty"`
	// Due is when its time is up, or its next attempt begins; 0 means never.
	Due time.Duration `json:"due,omitzero"`
	// Since is when it was started. Asked is that too, or when an operator retried it, without the time of pauses.
	Since time.Duration `json:"since,omitzero"`
	Asked time.Duration `json:"asked,omitzero"`
	// SentAs, Message, Topic and Key are those of its command, for further attempts and for the undo. They do not change with
	// the definition. SentAs is the path, with a generation: a refused step that an operator retries is another step for its
	// participant.
	SentAs     string `json:"sent_as,omitzero"`
	Generation int    `json:"generation,omitzero"`
	Message    string `json:"message,omitzero"`
	Topic      string `json:"topic,omitzero"`
	Key        string `json:"key,omitzero"`
	// Case is the case that a Choose took.
	Case string `json:"case,omitzero"`
	// Child is the ID of the instance that a Child started.
	Child string `json:"child,omitzero"`
	// Items are those of an Each, as they were listed when it started, with the data as their steps have left them.
	Items []Item `json:"items,omitempty"`
	// Question is what an Ask shows, Options are the answers to choose from, and Roles those who may answer, all as they were when it was
	// asked: whoever shows it to people needs no definition.
	Question string   `json:"question,omitzero"`
	Options  []string `json:"options,omitempty"`
	Roles    []string `json:"roles,omitempty"`
	// Skip: it is being undone because an operator skipped it, and the instance continues afterwards.
	Skip bool `json:"skip,omitzero"`
	// ByHand: an operator did it, so an operator undoes it. While it is undoing and the instance is not, its participant confirms that
	// it has not done it too.
	ByHand bool `json:"by_hand,omitzero"`
	// Reason says why it was refused or is stuck.
	Reason string `json:"reason,omitzero"`
	// Failed: of a contract's event, it is known that it did not happen. Process is that of the event, if it is not the instance's;
	// ContentType is that of its payload, if it is not JSON.
	Failed      bool   `json:"failed,omitzero"`
	Process     string `json:"process,omitzero"`
	ContentType string `json:"content_type,omitzero"`
}

// finished says whether the steps after it can run.
func (s *StepState) finished() bool {
	return s != nil && (s.Status == StepDone || s.Status == StepSkipped || s.Status == StepRefused || s.Status == StepReleased)
}

// open says whether the instance waits for the step.
func (s *StepState) open() bool {
	return s.Status == StepWaiting || s.Status == StepUnknown || s.Status == StepUndoing || s.Status == StepStuck
}

// byHand says whether an operator did it, and nothing is known of its service.
func (s *StepState) byHand() bool { return s.ByHand && !s.Seen }

// Status is the status of the instance.
func (s *State) Status() Status {
	switch {
	case s.Ended != "":
		return s.Ended
	case s.anyStep(func(st *StepState) bool { return st.Status == StepStuck }):
		return Stuck
	case s.Back:
		return Compensating
	default:
		return Running
	}
}

// Owed returns the paths of the steps with an open obligation, sorted.
func (s *State) Owed() []string {
	return s.paths(func(st *StepState) bool { return st.Owed })
}

// Waiting returns the paths of the steps that the instance waits for, sorted.
func (s *State) Waiting() []string {
	return s.paths((*StepState).open)
}

// Asking returns the paths of the Asks that can be answered, sorted.
func (s *State) Asking() []string {
	if s.Back || s.Ended != "" {
		return nil
	}
	return s.paths(func(st *StepState) bool { return st.Status == StepWaiting && len(st.Options) > 0 })
}

func (s *State) paths(of func(*StepState) bool) (found []string) {
	for path, st := range s.Steps {
		if of(st) {
			found = append(found, path)
		}
	}
	slices.Sort(found)
	return found
}

func (s *State) anyStep(is func(*StepState) bool) bool {
	for _, st := range s.Steps {
		if is(st) {
			return true
		}
	}
	return false
}

// clone returns a copy that shares nothing that Advance changes.
func (s State) clone() State {
	steps := make(map[string]*StepState, len(s.Steps))
	for path, st := range s.Steps {
		c := *st
		c.Items, c.Effects = slices.Clone(st.Items), slices.Clone(st.Effects)
		steps[path] = &c
	}
	s.Steps = steps
	if s.Cause != nil {
		c := *s.Cause
		s.Cause = &c
	}
	if s.Parent != nil {
		c := *s.Parent
		s.Parent = &c
	}
	s.Signals, s.Consumed, s.Items = slices.Clone(s.Signals), slices.Clone(s.Consumed), maps.Clone(s.Items)
	return s
}

// Expects says whether an attempt of a local step is still wanted, so that the engine runs it.
func (s *State) Expects(sentAs string, undo bool, attempt int) bool {
	status := StepWaiting
	if undo {
		status = StepUndoing
	}
	return s.Ended == "" && (undo || !s.Back) && s.anyStep(func(st *StepState) bool {
		return st.SentAs == sentAs && st.Status == status && st.Before+st.Attempt == attempt
	})
}

// PathOf returns the path of the step whose last command was sent under a name, "" if there is none.
func (s *State) PathOf(sentAs string) string {
	for path, st := range s.Steps {
		if st.SentAs == sentAs {
			return path
		}
	}
	return ""
}

// Released returns the paths of the steps whose obligation an operator released, sorted.
func (s *State) Released() []string {
	return s.paths(func(st *StepState) bool { return st.Status == StepReleased })
}
