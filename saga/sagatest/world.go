package sagatest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/saga/internal/machine"
	"github.com/postrider/postrider/store"
)

// model is a definition with the parts that tests of this package replace by broken ones.
type model struct {
	d       *machine.Definition
	p       machine.Policy
	advance func(p machine.Policy, in machine.Instance, input machine.Input) (machine.Instance, machine.Output, error)
	decide  func(record store.SagaStepState, undo, undoes, seen, expired bool) machine.Action
	// exists says whether a start finds the instance of an earlier one.
	exists func(started bool) bool
	// local changes the data as a local step would.
	local map[string]func(data json.RawMessage, undo bool) (json.RawMessage, error)
	// child: the instance was started by another, which may want it undone.
	child bool
}

func newModel(d *machine.Definition, p machine.Policy) *model {
	return &model{
		d: d, p: p, advance: d.Advance, decide: machine.Decide, exists: func(started bool) bool { return started },
		local: make(map[string]func(json.RawMessage, bool) (json.RawMessage, error)),
	}
}

// world is one state of everything that a saga's run consists of: its instance, the records of its participants, and the
// messages in flight. Its methods change it; clone first.
type world struct {
	inst    machine.Instance
	age     time.Duration
	records map[string]*record // by run and SentAs
	flight  []message
	starts  int
	dups    int
	cancels int
	verbs   int            // of operators
	sent    map[string]int // signals, by type
	byHand  map[string]int // how often an operator has done a step, by path
	events  []machine.Event
	// answered is what the parent of the instance was told about its end.
	answered machine.Outcome
}

// record is what a participant remembers, and how often it did and undid the step.
type record struct {
	path         string
	state        store.SagaStepState
	reply        []byte
	refusal      machine.Refusal
	done, undone int
}

// message is a message in flight.
type message struct {
	// queue is the way that it takes: the messages of a way stay in order.
	queue string
	kind  kind
	run   string
	// path and sentAs are those of the step; attempt, undo and seen those of a command.
	path, sentAs string
	attempt      int
	undo, seen   bool
	reply        *machine.Reply
	signal       machine.Signal
	timer        int64
	at           time.Duration // of a timer
	copied       bool          // it was delivered before
}

type kind string

const (
	toParticipant kind = "command"
	toSelf        kind = "local step"
	toEngine      kind = "reply"
	toTimer       kind = "timer"
	toSignal      kind = "signal"
	// of a contract
	toTracker  kind = "event"
	toService  kind = "news"
	toServices kind = "saga.timed-out"
)

func newWorld() *world {
	return &world{records: make(map[string]*record), sent: make(map[string]int), byHand: make(map[string]int)}
}

func (w *world) clone() *world {
	c := *w
	c.records = make(map[string]*record, len(w.records))
	for k, r := range w.records {
		n := *r
		c.records[k] = &n
	}
	c.flight, c.sent, c.byHand, c.events = slices.Clone(w.flight), maps.Clone(w.sent), maps.Clone(w.byHand), nil
	return &c
}

// start handles a start with data: only the first one makes an instance.
func (w *world) start(m *model, data json.RawMessage) error {
	if m.exists(w.starts > 0) {
		return nil
	}
	w.starts++
	run := fmt.Sprintf("run%d", w.starts)
	w.inst = machine.Instance{ID: "id", Run: run, Data: data, State: machine.State{Token: run}}
	if m.child {
		w.inst.State.Parent = &machine.Parent{ID: "parent", Run: "parent", Step: "step"}
	}
	return w.input(m, machine.Input{Start: &machine.Start{}})
}

// input handles an input and sends what it results in.
func (w *world) input(m *model, input machine.Input) error {
	input.Age, input.ReadUpTo = w.age, w.age
	before := w.inst
	after, out, err := m.advance(m.p, before, input)
	if errors.Is(err, machine.ErrInput) {
		w.events = append(w.events, machine.Event{What: "dead-lettered", Note: err.Error()})
		return nil
	}
	if err != nil {
		return err
	}
	if reopened := w.reopens(input); m.d != nil && before.State.Ended != "" && !reopened && (len(out.Commands) > 0 || after.State.Ended != before.State.Ended) {
		return fmt.Errorf("the instance had ended %s and went on as %s", before.State.Ended, after.State.Status())
	}
	if early := w.early(before.State, out.Events); early != "" {
		return fmt.Errorf("step %s timed out before its time", early)
	}
	for path, st := range before.State.Steps {
		if now := after.State.Steps[path]; now != nil && st.Case != "" && now.Case != st.Case {
			return fmt.Errorf("step %s chose case %q and then %q", path, st.Case, now.Case)
		}
	}
	w.inst, w.events = after, append(w.events, out.Events...)
	if out.Answer != nil {
		w.answered = out.Answer.Outcome
	} else if after.State.Ended == "" {
		w.answered = ""
	}
	for _, event := range out.Events {
		if event.What == machine.EventOverruled {
			delete(w.byHand, event.Step) // the operator reads it, and undoes what was done by hand
		}
	}
	for _, c := range out.Commands {
		w.flight = append(w.flight, w.command(c))
	}
	if len(out.Reports) > 0 {
		w.flight = append(w.flight, message{queue: "to services", kind: toServices})
	}
	if out.Timer != nil {
		w.flight = append(w.flight, message{
			queue: "timer", kind: toTimer, run: after.Run, timer: out.Timer.ID, at: w.age + out.Timer.After,
		})
	}
	return nil
}

// reopens says whether an input can turn back an instance that is completed: it is the wish of its parent.
func (w *world) reopens(input machine.Input) bool {
	return input.Parent != nil && *input.Parent == machine.WishUndo && w.inst.State.Ended == machine.Completed
}

// early returns a step that was timed out although its time was not up.
func (w *world) early(before machine.State, events []machine.Event) string {
	for _, event := range events {
		for path, st := range before.Steps {
			if event.What == "timed out" && (path == event.Step || st.SentAs == event.Step) && st.Due > w.age {
				return path
			}
		}
	}
	return ""
}

func (w *world) command(c machine.Command) message {
	m := message{kind: toSelf, queue: "local", run: w.inst.Run, path: c.Path, sentAs: c.SentAs, attempt: c.Attempt, undo: c.Undo, seen: c.Seen}
	switch {
	case c.Child != nil && c.Undo: // by another way than its start, which comes with the transition
		m.kind, m.queue = toParticipant, "to "+c.Path+" undo"
	case c.Child != nil:
		m.kind, m.queue = toParticipant, "to "+c.Path
	case !c.Local:
		m.kind, m.queue = toParticipant, "to "+c.Message.Topic
	}
	return m
}

// steps are those of the definition as the instance runs it, with the items that it has listed; step is the one with a path.
func (w *world) steps(m *model) []*machine.Step { return m.d.For(&w.inst.State).All() }

func (w *world) step(m *model, path string) *machine.Step { return m.d.For(&w.inst.State).Step(path) }

func (w *world) record(msg message) *record {
	key := msg.run + "/" + msg.sentAs
	r := w.records[key]
	if r == nil {
		r = &record{path: msg.path}
		w.records[key] = r
	}
	return r
}

// participant handles a command or an undo. If its handler runs, answer says how it ends.
func (w *world) participant(m *model, msg message, answer machine.Reply) {
	r, step := w.record(msg), w.step(m, msg.path)
	reply := machine.Reply{SentAs: msg.sentAs, Token: msg.run}
	switch m.decide(r.state, msg.undo, canUndo(step), msg.seen, false) {
	case machine.RunDo:
		reply.Outcome, reply.Payload, reply.Refusal = answer.Outcome, answer.Payload, answer.Refusal
		r.reply, r.refusal, r.state = answer.Payload, answer.Refusal, store.SagaStepRefused
		if answer.Outcome == machine.OutcomeDone {
			r.done++
			r.state = store.SagaStepDone
		}
	case machine.RunUndo:
		r.undone++
		r.state, reply.Outcome = store.SagaStepUndone, machine.OutcomeUndone
	case machine.Block:
		r.state, reply.Outcome = store.SagaStepBlocked, machine.OutcomeUndone
	case machine.Undone:
		reply.Outcome = machine.OutcomeUndone
	case machine.Cannot:
		reply.Outcome, reply.Payload = machine.OutcomeCannotUndo, r.reply
	case machine.BlockDone:
		r.state, reply.Outcome = store.SagaStepBlocked, machine.OutcomeNoRecord
	case machine.NoRecord:
		reply.Outcome = machine.OutcomeNoRecord
	case machine.Refuse:
		reply.Outcome, reply.Refusal = machine.OutcomeRefused, machine.Refusal{Reason: machine.Blocked}
	case machine.Repeat:
		reply.Outcome, reply.Refusal = machine.OutcomeRefused, r.refusal
		if r.state == store.SagaStepDone {
			reply.Outcome, reply.Payload = machine.OutcomeDone, r.reply
		}
	}
	w.flight = append(w.flight, message{
		queue: "from " + strings.TrimPrefix(msg.queue, "to "), kind: toEngine, run: msg.run, path: msg.path, sentAs: msg.sentAs, reply: &reply,
	})
}

// canUndo says whether the participant of a step can undo it. An instance that a Child has started is one.
func canUndo(s *machine.Step) bool {
	return !s.NoUndo && (s.Child == nil || !s.Child.HasPivot())
}

// runs says whether a participant would run its handler, so that its answer matters.
func (w *world) runs(m *model, msg message) bool {
	r := w.records[msg.run+"/"+msg.sentAs]
	state := store.SagaStepNone
	if r != nil {
		state = r.state
	}
	return m.decide(state, msg.undo, canUndo(w.step(m, msg.path)), msg.seen, false) == machine.RunDo
}

// self runs a local step in the transition that records its outcome. A message that is not wanted any more changes nothing.
func (w *world) self(m *model, msg message, answer machine.Reply) error {
	if msg.run != w.inst.Run || !w.inst.State.Expects(msg.sentAs, msg.undo, msg.attempt) {
		return nil
	}
	reply := machine.Reply{SentAs: msg.sentAs, Token: msg.run, Outcome: answer.Outcome, Refusal: answer.Refusal}
	if change := m.local[msg.path]; change != nil && answer.Outcome != machine.OutcomeFailed && answer.Outcome != machine.OutcomeRefused {
		data, err := change(w.inst.Data, msg.undo)
		if err != nil {
			reply.Outcome, reply.Refusal = machine.OutcomeRefused, machine.RefusalOf(err)
		} else {
			reply.Data = data
		}
	}
	r := w.record(msg)
	switch reply.Outcome {
	case machine.OutcomeDone:
		r.done++
	case machine.OutcomeUndone:
		r.undone++
	}
	return w.input(m, machine.Input{Reply: &reply})
}

// fire lets time pass until a timer, and handles it.
func (w *world) fire(m *model, msg message) error {
	w.age = max(w.age, msg.at)
	if msg.run != w.inst.Run {
		return nil
	}
	return w.input(m, machine.Input{Timer: &machine.Fired{ID: msg.timer}})
}

// effect is how often a step has happened and was not undone.
func (w *world) effect(path string) (n int) {
	n = w.byHand[path]
	for _, r := range w.records {
		if r.path == path {
			n += r.done - r.undone
		}
	}
	return n
}
