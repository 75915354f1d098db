package machine

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/postrider/postrider/internal/protect"
)

// run runs a sequence of steps as far as it goes. It reports whether all of them are finished.
func (t *transition) run(steps []*Step) bool {
	for _, s := range steps {
		if !t.runStep(s) {
			return false
		}
	}
	return true
}

// runStep starts a step whose turn has come, and reports whether it is finished.
func (t *transition) runStep(s *Step) bool {
	st := t.s.Steps[s.Path]
	if st == nil {
		if st = t.enter(s); st.Status == StepStuck || t.s.Back {
			return false
		}
	}
	switch {
	case st.finished():
		return true
	case s.Kind == Choose:
		return st.Status != StepStuck && t.run(s.chosen(st.Case))
	case s.Kind == Parallel:
		all := st.Status != StepStuck
		for _, b := range s.Branches {
			all = !t.s.Back && t.runStep(b) && all
		}
		return all
	case s.Kind == Each:
		return st.Status != StepStuck && t.runItems(s, st)
	}
	return false
}

// enter makes the state of a step and starts it, unless its condition is false.
func (t *transition) enter(s *Step) *StepState {
	st := &StepState{Since: t.age}
	t.s.Steps[s.Path] = st
	skip := false
	if s.OnlyIf != nil && !t.guarded(s, st, "OnlyIf", func(data any) error { skip = !s.OnlyIf(data); return nil }) {
		return st
	}
	if skip {
		st.Status = StepSkipped
		t.event("step.skipped", s.Path, "OnlyIf is false")
		return st
	}
	t.start(s, st)
	return st
}

// start starts a step that has not been started, or starts it again.
func (t *transition) start(s *Step, st *StepState) {
	switch s.Kind {
	case Request, Local, Child:
		st.Generation++
		st.SentAs = s.Path
		if st.Generation > 1 {
			st.SentAs += "#" + strconv.Itoa(st.Generation)
		}
		st.Since, st.Asked, st.Attempt, st.Seen, st.Before, st.Effects = t.age, t.clock(), 0, false, 0, nil
		st.Message, st.Topic, st.Key = "", "", ""
		t.send(s, st)
	case Await:
		t.wait(s, st)
		t.takeEarly(s, st)
	case Ask:
		if t.guarded(s, st, "Question", func(data any) error { st.Question = s.Question(data); return nil }) {
			st.Options, st.Roles, st.Since = s.Options, s.Roles, t.age
			t.wait(s, st)
		}
	case Choose:
		t.choose(s, st)
	case Each:
		t.list(s, st)
	case Parallel:
	}
}

// send sends the command of a step: the next attempt.
func (t *transition) send(s *Step, st *StepState) {
	c := Command{Path: s.Path, SentAs: st.SentAs, Local: s.Kind == Local, Attempt: st.Before + st.Attempt + 1, Since: st.Since}
	if s.Kind == Request {
		if !t.guarded(s, st, "Command", func(data any) (err error) {
			if c.Message, err = s.Command(data); err != nil {
				return err
			}
			if st.Message != "" {
				c.Message.Type, c.Message.Topic, c.Message.Key = st.Message, st.Topic, st.Key
			}
			return t.check(c.Message)
		}) {
			return
		}
		st.Message, st.Topic, st.Key, st.Owed = c.Message.Type, c.Message.Topic, c.Message.Key, true
	}
	if s.Kind == Child {
		if !t.guarded(s, st, "Data", func(data any) (err error) { c.Child, err = t.child(s, st, data); return err }) {
			return
		}
		st.Child, st.Owed = c.Child.ID, true
	}
	st.Attempt++
	if st.Status != StepUnknown {
		st.Status = StepWaiting
	}
	switch {
	case s.Kind == Child: // starts with this transition, and always ends
		st.Due = 0
	case st.Status == StepUnknown:
		st.Due = t.clock() + max(t.timeout(s), t.backoff(st.SentAs, st.Attempt))
	default:
		st.Due = t.clock() + t.timeout(s)
	}
	t.out.Commands = append(t.out.Commands, c)
	t.event("command.sent", st.SentAs, "attempt "+strconv.Itoa(st.Attempt))
}

// wait makes a step wait for a signal or a person.
func (t *transition) wait(s *Step, st *StepState) {
	st.Status, st.Due = StepWaiting, 0
	if s.Timeout > 0 {
		st.Due = t.clock() + s.Timeout
	}
	t.event("waiting", s.Path, string(s.Kind))
}

// choose takes the first case whose condition is true, once and for all.
func (t *transition) choose(s *Step, st *StepState) {
	for _, c := range s.Cases {
		taken := c.If == nil
		if !taken && !t.guarded(s, st, "If of case "+c.Name, func(data any) error { taken = c.If(data); return nil }) {
			return
		}
		if taken {
			st.Case = c.Name
			t.event("case", s.Path, c.Name)
			return
		}
	}
	st.Status = StepSkipped
	t.event("step.skipped", s.Path, "no case applies")
}

// signal gives a signal to the step that waits for it, or keeps it for the step that will: also in an instance that turned back or was
// compensated, since it turns forward again if its pivot is done.
func (t *transition) signal(sig Signal) error {
	for _, known := range t.s.Signals {
		if known.ID == sig.ID {
			t.out.Ignored = true
			return nil
		}
	}
	if slices.Contains(t.s.Consumed, sig.ID) {
		t.out.Ignored = true
		return nil
	}
	var s *Step
	for _, other := range t.d.order {
		if other.Kind == Await && other.Message == sig.Type {
			s = other
		}
	}
	switch {
	case s == nil:
		return fmt.Errorf("%w: saga %s v%d awaits no %s", ErrInput, t.d.Name, t.d.Version, sig.Type)
	case t.s.Ended != "" && !t.pivotMayBeDone() || t.s.Steps[s.Path].finished():
		t.event("late", s.Path, "signal "+sig.ID)
	case !t.s.Back && t.s.Steps[s.Path] != nil && t.s.Steps[s.Path].Status == StepWaiting:
		return t.take(s, t.s.Steps[s.Path], sig)
	case t.p.MaxState > 0 && t.early()+len(sig.Payload) > t.p.MaxState:
		return fmt.Errorf("%w: instance %s keeps early signals of %d bytes already", ErrInput, t.in.ID, t.early())
	case len(t.s.Signals) >= t.p.MaxSignals:
		return fmt.Errorf("%w: instance %s keeps %d early signals already", ErrInput, t.in.ID, len(t.s.Signals))
	default:
		if err := t.try(s, sig.Payload); err != nil { // now, while its sender can be told
			return err
		}
		t.s.Signals = append(t.s.Signals, sig)
		t.event("signal.kept", s.Path, sig.ID)
	}
	return nil
}

// pivotMayBeDone says whether a participant without records may yet say, of an instance that was compensated, that it has done the pivot.
func (t *transition) pivotMayBeDone() bool {
	return t.s.Ended == Compensated && slices.ContainsFunc(t.d.order, func(s *Step) bool {
		st := t.s.Steps[s.Path]
		return s.Pivot && st != nil && (st.Status == StepUndone || st.Status == StepRefused)
	})
}

// early is the size of the signals that are kept.
func (t *transition) early() (bytes int) {
	for _, sig := range t.s.Signals {
		bytes += len(sig.Payload)
	}
	return bytes
}

// takeEarly gives an Await the first of its signals that arrived before.
func (t *transition) takeEarly(s *Step, st *StepState) {
	i := slices.IndexFunc(t.s.Signals, func(sig Signal) bool { return sig.Type == s.Message })
	if i < 0 {
		return
	}
	sig := t.s.Signals[i]
	t.s.Signals = slices.Delete(t.s.Signals, i, i+1)
	if err := t.take(s, st, sig); err != nil {
		t.s.Signals = slices.Insert(t.s.Signals, i, sig) // for a retry
		t.stuck(s.Path, st, err.Error())
	}
}

// take applies a signal to the step that waits for it.
func (t *transition) take(s *Step, st *StepState, sig Signal) error {
	if err := t.try(s, sig.Payload); err != nil {
		return err
	}
	if !t.change(s, st, "Received", func(data any) { _ = s.Done(data, sig.Payload) }) {
		t.s.Signals = slices.Insert(t.s.Signals, 0, sig) // for a retry
		return nil
	}
	t.s.Consumed = append(t.s.Consumed, sig.ID)
	t.finish(s, st)
	return nil
}

// try says whether a payload can be decoded, without changing the data.
func (t *transition) try(s *Step, payload []byte) error {
	if s.Done == nil {
		return nil
	}
	err := t.protected(func() error {
		sc := t.scope(s)
		scratch, err := sc.Decode(*sc.json)
		if err == nil {
			err = s.Done(scratch, payload)
		}
		return err
	})
	if err != nil && !errors.Is(err, errPanic) && !errors.Is(err, protect.ErrGoexit) { // that is found again, and reported, when the payload is applied
		return fmt.Errorf("%w: step %s: %w", ErrInput, s.Path, err)
	}
	return nil
}

// finish marks a step as done.
func (t *transition) finish(s *Step, st *StepState) {
	st.Status, st.Due, st.Attempt, st.Reason = StepDone, 0, 0, ""
	t.event("step.done", s.Path, "")
}
