package sagatest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/saga/internal/machine"
	"github.com/postrider/postrider/store"
)

// Items names the items of the events of a contract that have some. Default: "1" and "2".
func Items(items ...string) Option { return func(e *explorer) { e.items = items } }

// ExploreContract explores all reachable states of an instance of a contract, as Explore does for definitions: its tracker, and
// services that react to each other's events by Participant.Do and Participant.Undo. In each state, every event, request and answer that
// may be next is delivered, once or twice; a service does its step or refuses it; a pivot that has happened can be undone or not; or
// time passes until the timer, whatever is under way. Of alternatives (OneOf), one happens.
//
// It fails t with the shortest history that breaks one of these rules:
//
//   - A step of a service happens at most once, and is undone at most once, after it happened.
//   - In a completed instance every event that counts as done has happened and is not undone. In a compensated one, every event with
//     an undo is undone, or has not happened and will not; with Observe, once everything was delivered.
//   - An instance always waits for something, and from every state it can end or become stuck.
//   - Transitions depend on nothing but the instance and the input.
//
// The functions of the contract (Instance, Items, Item, announcements) do not run. Undos are requested twice. Options that concern
// definitions have no effect.
func ExploreContract(t testing.TB, c saga.Contract, options ...Option) Explored {
	t.Helper()
	compiled, err := c.Compile()
	if err != nil {
		t.Fatal(err)
	}
	e := newExplorer(t, newContractModel(compiled), nil)
	for _, o := range options {
		o(e)
	}
	newServices(e, compiled)
	return e.report()
}

func newContractModel(c *machine.Contract) *model {
	return &model{p: policy(2), advance: c.Advance, decide: machine.Decide}
}

// services are those that a contract names.
type services struct {
	*explorer
	c *machine.Contract
}

// newServices lets an explorer explore a contract.
func newServices(e *explorer, c *machine.Contract) *services {
	s := &services{e, c}
	e.next, e.check = s.moves, s.check
	for _, event := range c.Events {
		if event.Each {
			event.Items = func(*postrider.Message) ([]string, error) { return e.items, nil }
			event.Item = func(m *postrider.Message) (string, error) { return m.Headers["item"], nil }
		}
	}
	c.OnEnded = nil
	if c.OnTimedOut != nil {
		c.OnTimedOut = func(machine.Report) (*postrider.Message, error) {
			return &postrider.Message{Type: string(toServices)}, nil
		}
	}
	return s
}

// paths are those of an event.
func (s *services) paths(e *machine.Expected) (paths []string) {
	if !e.Each {
		return []string{e.Name}
	}
	for _, item := range s.items {
		paths = append(paths, e.Name+"["+item+"]")
	}
	return paths
}

// moves lists what can happen in a state.
func (s *services) moves(w *world) (found []move) {
	if w.starts == 0 {
		return []move{{"the start is published", func(w *world) error {
			w.starts++
			w.inst = machine.Instance{ID: "id", Run: "run", State: machine.State{Token: "run"}}
			for _, e := range s.c.Events {
				for _, path := range s.paths(e) {
					s.record(w, path)
				}
				if e.Start {
					s.happens(w, e, e.Name)
				}
			}
			return nil
		}}}
	}
	taken := make(map[string]bool)
	for i, msg := range w.flight {
		if msg.kind == toTimer || taken[msg.queue] && !s.anyOrder {
			continue
		}
		taken[msg.queue] = true
		for _, answer := range s.answers(w, msg) {
			label := strings.TrimSuffix(fmt.Sprintf("%s is delivered: %s", msg, answer), ": ")
			found = append(found, move{label, func(w *world) error { return s.deliver(w, w.take(i), answer) }})
			if w.dups < s.duplicates && !msg.copied {
				found = append(found, move{label + " (and will be redelivered)", func(w *world) error {
					w.dups++
					w.flight = slices.Clone(w.flight)
					w.flight[i].copied = true
					return s.deliver(w, w.flight[i], answer)
				}})
			}
		}
	}
	if i := w.nextTimer(); i >= 0 {
		found = append(found, move{"time passes until the timer", func(w *world) error { return w.fire(s.model, w.take(i)) }})
	}
	return append(found, s.decisions(w)...)
}

// decisions are those of the owner and of operators.
func (s *services) decisions(w *world) (found []move) {
	verb := func(who string, count func(w *world), v machine.Verb) {
		v.Actor, v.Reason = who, "explored"
		found = append(found, move{strings.TrimSpace(who + " says " + string(v.Kind) + " " + v.Step), func(w *world) error {
			count(w)
			return w.input(s.model, machine.Input{Verb: &v})
		}})
	}
	if w.inst.Rev == 0 {
		return nil
	}
	if w.cancels < s.explorer.cancels {
		verb("the owner", func(w *world) { w.cancels++ }, machine.Verb{Kind: machine.VerbCancel})
	}
	if w.inst.State.Paused {
		verb("an operator", func(*world) {}, machine.Verb{Kind: machine.VerbResume})
	}
	if w.verbs >= s.verbs || w.inst.State.Ended != "" {
		return found
	}
	once := func(w *world) { w.verbs++ }
	for _, kind := range []machine.VerbKind{machine.VerbPause, machine.VerbRetry, machine.VerbCompensate} {
		verb("an operator", once, machine.Verb{Kind: kind})
	}
	for _, path := range w.inst.State.Waiting() {
		verb("an operator", once, machine.Verb{Kind: machine.VerbSkip, Step: path})
	}
	return found
}

const (
	does    = "it happens"
	another = "an alternative is chosen"
	undoes  = "it is undone"
	cannot  = "it cannot be undone"
)

// answers are what the receiver of a message can make of it: "" if there is no choice.
func (s *services) answers(w *world, msg message) []string {
	e := s.c.Event(msg.path)
	switch {
	case msg.kind == toService && s.begins(w, e, msg):
		if slices.ContainsFunc(s.alternatives(e), func(name string) bool { return w.sent["chosen "+name] > 0 && name != e.Name }) {
			return []string{another}
		}
		answers := append([]string{does}, e.Fails...)
		if slices.ContainsFunc(s.alternatives(e), func(name string) bool { return name != e.Name && w.sent[name+" is not chosen"] == 0 }) {
			answers = append(answers, another)
		}
		return answers
	case msg.kind == toParticipant && e.Pivot && s.record(w, msg.path).state == store.SagaStepDone && s.record(w, msg.path).refusal.Reason == "":
		return []string{undoes, cannot}
	}
	return []string{""}
}

// alternatives are the events of the groups that an event belongs to, with itself.
func (s *services) alternatives(e *machine.Expected) (names []string) {
	for _, other := range s.c.Events {
		for _, group := range other.After {
			if slices.Contains(group, e.Name) && len(group) > 1 {
				names = append(names, group...)
			}
		}
	}
	return names
}

// begins says whether a service, once it has this news, has all that its step comes after, and has not decided about it.
func (s *services) begins(w *world, e *machine.Expected, msg message) bool {
	heard := func(name string) bool {
		return !slices.ContainsFunc(s.paths(s.c.Event(name)), func(path string) bool {
			return path != msg.sentAs && w.sent[msg.path+" hears "+path] == 0
		})
	}
	return s.record(w, msg.path).state == store.SagaStepNone && w.sent[msg.path+" is not chosen"] == 0 &&
		!slices.ContainsFunc(e.After, func(group []string) bool { return !slices.ContainsFunc(group, heard) })
}

func (s *services) record(w *world, path string) *record {
	return w.record(message{path: path, sentAs: path})
}

// deliver gives a message to its receiver.
func (s *services) deliver(w *world, msg message, answer string) error {
	switch {
	case msg.reply != nil:
		return w.input(s.model, machine.Input{Reply: msg.reply})
	case msg.kind == toTracker:
		return w.input(s.model, machine.Input{Process: "p", Event: &postrider.Message{
			Type: msg.sentAs, ID: msg.sentAs + " " + msg.path, Payload: []byte("{}"), Headers: map[string]string{"item": machine.ItemOf(msg.path)},
		}})
	case msg.kind == toServices:
		s.undoAll(w)
	case msg.kind == toParticipant:
		s.undo(w, msg, answer)
	default:
		s.hears(w, msg, answer)
	}
	return nil
}

// hears lets a service hear of an event, and do its step if it is the last one that it waits for.
func (s *services) hears(w *world, msg message, answer string) {
	e := s.c.Event(msg.path)
	w.sent[msg.path+" hears "+msg.sentAs] = 1
	switch answer {
	case "":
	case another:
		w.sent[msg.path+" is not chosen"] = 1
	case does:
		w.sent["chosen "+e.Name] = 1
		s.happens(w, e, msg.path)
	default:
		w.sent["chosen "+e.Name] = 1
		s.record(w, msg.path).state = store.SagaStepRefused
		s.publish(w, e, msg.path, answer)
		if s.c.Observe {
			s.undoAll(w)
		}
	}
}

// happens lets a step of a service happen.
func (s *services) happens(w *world, e *machine.Expected, path string) {
	r := s.record(w, path)
	r.done++
	r.state = store.SagaStepDone
	s.publish(w, e, path, e.Name)
	for _, after := range s.c.Events {
		if slices.ContainsFunc(after.After, func(group []string) bool { return slices.Contains(group, e.Name) }) {
			for _, p := range s.paths(after) {
				w.flight = append(w.flight, message{queue: "news for " + p, kind: toService, path: p, sentAs: path})
			}
		}
	}
}

// publish tells the tracker.
func (s *services) publish(w *world, e *machine.Expected, path, messageType string) {
	w.flight = append(w.flight, message{queue: "from " + e.Service, kind: toTracker, path: path, sentAs: messageType})
}

// undoAll lets all services undo what they have done, as they do when they hear of a failure.
func (s *services) undoAll(w *world) {
	for _, e := range s.c.Events {
		for _, path := range s.paths(e) {
			if s.undoable(e) {
				w.flight = append(w.flight, message{queue: "to " + e.Service, kind: toParticipant, path: path, sentAs: path, undo: true})
			}
		}
	}
}

func (s *services) undoable(e *machine.Expected) bool { return !e.NoUndo && e.Undone != "" }

// undo lets a service undo a step, or confirm that there is nothing to undo.
func (s *services) undo(w *world, msg message, answer string) {
	e := s.c.Event(msg.path)
	if e == nil {
		return
	}
	r := s.record(w, msg.path)
	if answer == cannot {
		r.refusal.Reason = cannot
	}
	says := func(o machine.Outcome) {
		w.flight = append(w.flight, message{
			queue: "from " + e.Service, kind: toTracker, path: msg.path, sentAs: msg.path + " " + string(o),
			reply: &machine.Reply{SentAs: msg.path, Token: "run", Outcome: o},
		})
	}
	switch s.model.decide(r.state, true, r.refusal.Reason == "", msg.seen, false) {
	case machine.Cannot:
		says(machine.OutcomeCannotUndo)
		return
	case machine.NoRecord, machine.BlockDone:
		says(machine.OutcomeNoRecord)
		return
	case machine.RunUndo:
		r.undone++
		r.state = store.SagaStepUndone
	case machine.Block:
		r.state = store.SagaStepBlocked
	}
	s.publish(w, e, msg.path, e.Undone)
}

// check returns what is wrong with a state, "" if nothing is.
func (s *services) check(w *world) string {
	state := &w.inst.State
	delivered := !slices.ContainsFunc(w.flight, func(msg message) bool { return msg.kind != toTimer })
	for _, e := range s.c.Events {
		for _, path := range s.paths(e) {
			r := s.record(w, path)
			n, st := r.done-r.undone, state.Steps[path]
			switch {
			case n < 0 || n > 1:
				return fmt.Sprintf("event %s happened %d times and was undone %d times", path, r.done, r.undone)
			case state.Ended == machine.Completed && st != nil && st.Status == machine.StepDone && n == 0:
				return fmt.Sprintf("the instance completed, and %s is undone", path)
			case state.Ended == machine.Completed && st != nil && st.Skip && n == 1:
				return fmt.Sprintf("the instance completed without %s, which happened", path)
			case state.Ended == machine.Compensated && n == 1 && s.undoable(e) && (delivered || !s.c.Observe):
				return fmt.Sprintf("the instance is compensated, and %s happened", path)
			}
		}
	}
	running := state.Ended == "" && state.Status() != machine.Stuck && !state.Paused
	if timer := state.Timer.At > 0 && w.nextTimer() >= 0; w.starts > 0 && running && delivered && !timer {
		return "the instance waits for nothing: no message is in flight, and no timer is set"
	}
	return ""
}
