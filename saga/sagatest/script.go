package sagatest

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/saga/internal/machine"
)

// Script runs a saga with participants that answer as a test says. Unless it says otherwise, a participant does a step at once and
// replies with the zero value of its type, and a local step succeeds without changing the data.
type Script[D any] struct {
	t        testing.TB
	model    *model
	answers  map[string]answer // by message type of the command
	failures map[string]int    // of local steps, by path
	events   []scheduled
	commands []string
}

// answer is how a participant answers the command of a step.
type answer struct {
	reply machine.Reply
	after time.Duration
	lost  bool
}

// scheduled is what comes from outside, at an age of the instance.
type scheduled struct {
	at    time.Duration
	input machine.Input
}

// Command is a step that a participant does: a saga.StepDefinition.
type Command interface {
	Type() string
	UndoType() string
}

// New returns a script for a definition, which must be valid.
func New[D any](t testing.TB, d saga.Definition[D]) *Script[D] {
	t.Helper()
	compiled, err := d.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return &Script[D]{
		t: t, model: newModel(compiled, policy(20)), answers: make(map[string]answer), failures: make(map[string]int),
	}
}

// Answer lets the participant of a step reply with a value.
func Answer[D, C, R any](s *Script[D], step saga.StepDefinition[C, R], reply R) {
	s.t.Helper()
	payload, err := json.Marshal(reply)
	if err != nil {
		s.t.Fatalf("sagatest: encode the reply of %s: %v", step.Type(), err)
	}
	a := s.answers[step.Type()]
	a.reply = machine.Reply{Outcome: machine.OutcomeDone, Payload: payload}
	s.answers[step.Type()] = a
}

// Refuse lets the participant of a step refuse it.
func (s *Script[D]) Refuse(step Command, reason string) {
	a := s.answers[step.Type()]
	a.reply = machine.Reply{Outcome: machine.OutcomeRefused, Refusal: saga.Refusal{Reason: reason}}
	s.answers[step.Type()] = a
}

// Late delays the reply of a step.
func (s *Script[D]) Late(step Command, after time.Duration) {
	a := s.answers[step.Type()]
	a.after = after
	s.answers[step.Type()] = a
}

// NoReply loses the replies of a step, although it is done or refused. Replies to its undo arrive.
func (s *Script[D]) NoReply(step Command) {
	a := s.answers[step.Type()]
	a.lost = true
	s.answers[step.Type()] = a
}

// Local replaces a local step outside of any Each, given by its path, by functions of the data. An error of do that saga.Refuse made refuses the step;
// undo may be nil.
func (s *Script[D]) Local(path string, do, undo func(d *D) error) {
	s.model.local[path] = func(data json.RawMessage, back bool) (json.RawMessage, error) {
		var d D
		if err := json.Unmarshal(data, &d); err != nil {
			return nil, err
		}
		f := do
		if back {
			f = undo
		}
		if f != nil {
			if err := f(&d); err != nil {
				return nil, err
			}
		}
		return json.Marshal(&d)
	}
}

// Fail lets the first n attempts of a local step, given by its path, fail.
func (s *Script[D]) Fail(path string, n int) { s.failures[path] = n }

// Signal sends a signal some time after the start.
func Signal[D, S any](s *Script[D], after time.Duration, signal postrider.Definition[S], data S) {
	s.t.Helper()
	m, err := signal.New(data)
	if err != nil {
		s.t.Fatalf("sagatest: signal %s: %v", signal.Type(), err)
	}
	s.events = append(s.events, scheduled{after, machine.Input{
		Signal: &machine.Signal{ID: postrider.NewID(), Type: m.Type, Payload: m.Payload},
	}})
}

// Operate performs an operation some time after the start, e.g. the answer to an Ask, or Cancel.
func (s *Script[D]) Operate(after time.Duration, o saga.Operation) {
	s.events = append(s.events, scheduled{after, machine.Input{Verb: &machine.Verb{
		Kind: machine.VerbKind(o.Verb), Step: o.Step, Rev: o.Rev, Actor: o.Actor, Reason: o.Reason, Force: o.Force, Option: o.Option, Patch: o.Patch,
	}}})
}

// longest is how many messages and timers Run handles before it gives up.
const longest = 100_000

// Run starts an instance with data and runs it until nothing more happens.
func (s *Script[D]) Run(data D) saga.Result[D] {
	s.t.Helper()
	input, err := s.model.d.Encode(&data)
	if err != nil {
		s.t.Fatal(err)
	}
	s.commands = nil
	slices.SortStableFunc(s.events, func(a, b scheduled) int { return int(a.at - b.at) })
	w, events := newWorld(), s.events
	err = w.start(s.model, input)
	for range longest {
		if err != nil {
			s.t.Fatalf("sagatest: %v", err)
		}
		i := s.next(w)
		switch {
		case len(events) > 0 && (i < 0 || w.flight[i].at > events[0].at):
			w.age = max(w.age, events[0].at)
			err = w.input(s.model, events[0].input)
			events = events[1:]
		case i < 0:
			return s.result(w)
		default:
			err = s.deliver(w, w.take(i))
		}
	}
	s.t.Fatalf("sagatest: the saga does not end: %d messages and timers were handled", longest)
	return saga.Result[D]{}
}

// next is the index of the message or timer that comes next, -1 if there is none. After the end, timers do not matter.
func (s *Script[D]) next(w *world) int {
	first := -1
	for i, m := range w.flight {
		if m.kind == toTimer && w.inst.State.Ended != "" {
			continue
		}
		if first < 0 || m.at < w.flight[first].at {
			first = i
		}
	}
	return first
}

// deliver gives a message to its receiver.
func (s *Script[D]) deliver(w *world, m message) error {
	w.age = max(w.age, m.at)
	switch m.kind {
	case toTimer:
		return w.fire(s.model, m)
	case toParticipant:
		s.participant(w, m)
		return nil
	case toSelf:
		outcome := machine.OutcomeDone
		if m.undo {
			outcome = machine.OutcomeUndone
		}
		if s.failures[m.path] > 0 {
			s.failures[m.path]--
			outcome = machine.OutcomeFailed
		}
		return w.self(s.model, m, machine.Reply{Outcome: outcome, Refusal: saga.Refusal{Reason: "failed", Text: "scripted"}})
	default:
		return w.deliver(s.model, m, machine.Reply{})
	}
}

// participant handles a command or an undo, and loses or delays its reply if the test says so.
func (s *Script[D]) participant(w *world, m message) {
	step := w.step(s.model, m.path)
	messageType := step.Message
	if m.undo {
		messageType = machine.UndoType(messageType)
	}
	s.commands = append(s.commands, messageType)
	a := s.answers[step.Message]
	if a.reply.Outcome == "" {
		payload, err := step.Sample()
		if err != nil {
			s.t.Fatalf("sagatest: encode the zero reply of %s: %v", step.Message, err)
		}
		a.reply = machine.Reply{Outcome: machine.OutcomeDone, Payload: payload}
	}
	w.participant(s.model, m, a.reply)
	last := len(w.flight) - 1
	switch {
	case m.undo:
	case a.lost:
		w.flight = w.flight[:last]
	case a.after > 0:
		w.flight[last].at = w.age + a.after
	}
}

func (s *Script[D]) result(w *world) saga.Result[D] {
	s.t.Helper()
	state := &w.inst.State
	r := saga.Result[D]{ID: w.inst.ID, Status: state.Status(), Cause: state.Cause, Waiting: state.Waiting(), Rev: w.inst.Rev}
	if err := json.Unmarshal(w.inst.Data, &r.Data); err != nil {
		s.t.Fatalf("sagatest: read the data: %v", err)
	}
	if broken := w.check(s.model); broken != "" && r.Status != saga.Stuck && len(r.Waiting) == 0 {
		s.t.Errorf("sagatest: %s", broken)
	}
	return r
}

// Want checks the status of a result.
func (s *Script[D]) Want(got saga.Result[D], want saga.Status) {
	s.t.Helper()
	if got.Status != want {
		s.t.Errorf("the saga is %s (cause %+v, waiting for %q), want %s", got.Status, got.Cause, got.Waiting, want)
	}
}

// WantCommands checks which commands and undos participants got, by message type, in order.
func (s *Script[D]) WantCommands(types ...string) {
	s.t.Helper()
	if !slices.Equal(s.commands, types) {
		s.t.Errorf("participants got %q, want %q", s.commands, types)
	}
}
