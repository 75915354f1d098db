package sagatest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/saga/internal/machine"
	"github.com/postrider/postrider/store"
)

// move is something that can happen next.
type move struct {
	label string
	make  func(w *world) error
}

// moves lists what can happen in a state, always in the same order.
func (e *explorer) moves(w *world) (found []move) {
	if w.starts == 0 {
		return []move{{"start", func(w *world) error { return w.start(e.model, e.data) }}}
	}
	if w.dups < e.duplicates && w.starts == 1 && w.inst.Rev == 1 {
		found = append(found, move{"start again", func(w *world) error {
			w.dups++
			return w.start(e.model, e.data)
		}})
	}
	taken := make(map[string]bool)
	ended := w.inst.State.Ended != ""
	for i, msg := range w.flight {
		if ended && len(found) > 0 {
			return append(found, e.parent(w)...) // what happens after the end at one participant does not depend on another: one order stands for all
		}
		if msg.kind == toTimer || taken[msg.queue] && (!e.anyOrder || msg.kind == toSelf) {
			continue
		}
		taken[msg.queue] = true
		found = append(found, e.deliveries(w, i)...)
	}
	if i := w.nextTimer(); i >= 0 {
		found = append(found, move{"time passes until the timer", func(w *world) error {
			msg := w.take(i)
			return w.fire(e.model, msg)
		}})
	}
	return append(found, e.outside(w)...)
}

// nextTimer is the index of the timer that fires first, -1 if there is none.
func (w *world) nextTimer() int {
	first := -1
	for i, msg := range w.flight {
		if msg.kind == toTimer && (first < 0 || msg.at < w.flight[first].at) {
			first = i
		}
	}
	return first
}

// take removes a message from those in flight.
func (w *world) take(i int) message {
	msg := w.flight[i]
	w.flight = slices.Delete(slices.Clone(w.flight), i, i+1)
	return msg
}

// deliveries are the ways in which a message can be delivered: each answer of its receiver, once or not for the last time.
func (e *explorer) deliveries(w *world, i int) (found []move) {
	msg := w.flight[i]
	for _, answer := range e.answers(w, msg) {
		label := fmt.Sprintf("%s is delivered", msg)
		if answer.Outcome != "" {
			label += ": " + string(answer.Outcome)
		}
		found = append(found, move{label, func(w *world) error { return w.deliver(e.model, w.take(i), answer) }})
		if w.dups < e.duplicates && !msg.copied {
			found = append(found, move{label + " (and will be redelivered)", func(w *world) error {
				w.dups++
				w.flight = slices.Clone(w.flight)
				w.flight[i].copied = true
				return w.deliver(e.model, w.flight[i], answer)
			}})
		}
	}
	return found
}

// deliver gives a message to its receiver, who answers so.
func (w *world) deliver(m *model, msg message, answer machine.Reply) error {
	switch msg.kind {
	case toParticipant:
		w.participant(m, msg, answer)
		return nil
	case toSelf:
		return w.self(m, msg, answer)
	case toSignal:
		return w.input(m, machine.Input{Signal: &msg.signal})
	default:
		return w.input(m, machine.Input{Reply: msg.reply})
	}
}

// answers are the answers that the receiver of a message can give; one without an outcome if it does not decide.
func (e *explorer) answers(w *world, msg message) []machine.Reply {
	switch {
	case msg.kind == toParticipant && w.runs(e.model, msg):
		return []machine.Reply{
			{Outcome: machine.OutcomeDone, Payload: e.payload(w, msg.path)},
			{Outcome: machine.OutcomeRefused, Refusal: machine.Refusal{Reason: "explored"}},
		}
	case msg.kind == toSelf && msg.undo:
		return []machine.Reply{{Outcome: machine.OutcomeUndone}, {Outcome: machine.OutcomeFailed}}
	case msg.kind == toSelf:
		return []machine.Reply{
			{Outcome: machine.OutcomeDone}, {Outcome: machine.OutcomeFailed},
			{Outcome: machine.OutcomeRefused, Refusal: machine.Refusal{Reason: "explored"}},
		}
	}
	return []machine.Reply{{}}
}

// outside is what comes from outside: signals, answers of people, a cancellation.
func (e *explorer) outside(w *world) (found []move) {
	found = e.parent(w)
	if w.inst.State.Ended != "" {
		return found
	}
	for _, s := range w.steps(e.model) {
		switch st := w.inst.State.Steps[s.Path]; {
		case s.Kind == machine.Await && w.sent[s.Message] == 0:
			found = append(found, move{"signal " + s.Message + " arrives", func(w *world) error {
				w.sent[s.Message]++
				sig := machine.Signal{ID: s.Message, Type: s.Message, Payload: e.payload(w, s.Path)}
				return w.input(e.model, machine.Input{Signal: &sig})
			}})
		case s.Kind == machine.Ask && st != nil && st.Status == machine.StepWaiting:
			for _, option := range s.Options {
				found = append(found, move{"somebody answers " + s.Path + " with " + option, func(w *world) error {
					return w.input(e.model, machine.Input{Verb: &machine.Verb{Kind: machine.VerbAnswer, Step: s.Path, Option: option, Actor: "somebody"}})
				}})
			}
		}
	}
	if w.cancels < e.cancels {
		found = append(found, move{"the owner cancels", func(w *world) error {
			w.cancels++
			return w.input(e.model, machine.Input{Verb: &machine.Verb{Kind: machine.VerbCancel, Actor: "owner", Reason: "explored"}})
		}})
	}
	return append(append(found, e.undoneByHand(w)...), e.operators(w)...)
}

// parent is the wish of the parent of the instance.
func (e *explorer) parent(w *world) []move {
	if p := w.inst.State.Parent; p == nil || p.Undo {
		return nil
	}
	return []move{{"its parent wants it undone", func(w *world) error {
		wish := machine.WishUndo
		return w.input(e.model, machine.Input{Parent: &wish})
	}}}
}

// operators are the verbs that operators can give.
func (e *explorer) operators(w *world) (found []move) {
	verb := func(v machine.Verb) {
		v.Actor, v.Reason = "operator", "explored"
		found = append(found, move{"an operator says " + strings.TrimSpace(string(v.Kind)+" "+v.Step), func(w *world) error {
			if v.Kind != machine.VerbResume {
				w.verbs++
			}
			return w.input(e.model, machine.Input{Verb: &v})
		}})
	}
	if w.inst.State.Paused {
		verb(machine.Verb{Kind: machine.VerbResume})
	}
	if w.verbs >= e.verbs {
		return found
	}
	verb(machine.Verb{Kind: machine.VerbPause})
	verb(machine.Verb{Kind: machine.VerbRetry})
	verb(machine.Verb{Kind: machine.VerbCompensate})
	verb(machine.Verb{Kind: machine.VerbCompensate, Force: true})
	for _, path := range w.inst.State.Owed() {
		found = append(found, e.undone(path))
	}
	for _, path := range w.inst.State.Waiting() {
		verb(machine.Verb{Kind: machine.VerbSkip, Step: path})
		found = append(found, e.done(path))
	}
	return found
}

// done is an operator who does a step by hand, and says so. If the instance turns back, the operator undoes it, and says so.
func (e *explorer) done(path string) move {
	return move{"an operator says done " + path, func(w *world) error {
		w.verbs++
		before := w.inst.State.Steps[path]
		again := before != nil && before.ByHand // it is refused
		v := machine.Verb{Kind: machine.VerbDone, Step: path, Actor: "operator", Reason: "explored"}
		if err := w.input(e.model, machine.Input{Verb: &v}); err != nil {
			return err
		}
		step := w.step(e.model, path)
		if st := w.inst.State.Steps[path]; st != nil && st.ByHand && !again && (step.Kind == machine.Request || step.Kind == machine.Local || step.Kind == machine.Child) {
			w.byHand[path]++
		}
		return nil
	}}
}

// undoneByHand is the operator who undoes what an operator did, or finds that the participant has done it.
func (e *explorer) undoneByHand(w *world) (found []move) {
	for path, n := range w.byHand {
		st := w.inst.State.Steps[path]
		if n == 0 || !w.inst.State.Back || st == nil || st.Status != machine.StepStuck || !st.ByHand {
			continue
		}
		found = append(found, move{"an operator undoes " + path + " by hand", func(w *world) error {
			w.byHand[path]--
			r := w.record(message{run: w.inst.Run, path: path, sentAs: st.SentAs})
			r.undone, r.state = r.done, store.SagaStepUndone // what the participant has not confirmed is the operator's, too
			v := machine.Verb{Kind: machine.VerbUndone, Step: path, Actor: "operator", Reason: "explored"}
			return w.input(e.model, machine.Input{Verb: &v})
		}})
	}
	return found
}

// undone is an operator who undoes by hand what a step has done, and says so.
func (e *explorer) undone(path string) move {
	return move{"an operator says undone " + path, func(w *world) error {
		w.verbs++
		v := machine.Verb{Kind: machine.VerbUndone, Step: path, Actor: "operator", Reason: "explored"}
		if err := w.input(e.model, machine.Input{Verb: &v}); err != nil || w.inst.State.Steps[path].Status != machine.StepUndone {
			return err
		}
		r := w.record(message{run: w.inst.Run, path: path, sentAs: w.inst.State.Steps[path].SentAs})
		r.undone, r.state = r.done, store.SagaStepUndone // also if it has not happened yet: the operator makes sure that it will not
		w.byHand[path] = 0
		return nil
	}}
}

// payload is the payload that a step's reply or signal has.
func (e *explorer) payload(w *world, path string) []byte {
	if p, ok := e.payloads[path]; ok {
		return p
	}
	p, err := w.step(e.model, path).Sample()
	if err != nil {
		panic(fmt.Sprintf("encode a sample for step %s: %v", path, err))
	}
	return p
}

// String names the message.
func (m message) String() string {
	switch m.kind {
	case toEngine:
		return fmt.Sprintf("reply %q of %s", m.reply.Outcome, m.sentAs)
	case toSelf, toParticipant:
		what := "command"
		if m.undo {
			what = "undo"
		}
		return fmt.Sprintf("%s %s (attempt %d)", what, m.sentAs, m.attempt)
	case toTracker:
		return "event " + m.sentAs
	case toService:
		return fmt.Sprintf("news of %s for %s", m.sentAs, m.path)
	default:
		return string(m.kind)
	}
}
