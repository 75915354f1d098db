package machine

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/protect"
)

// undoSuffix is what the type of an undo adds to that of its command.
const undoSuffix = ".undo"

// UndoType is the message type of the undo of a command.
func UndoType(command string) string { return command + undoSuffix }

// ErrInput marks an input that can never be applied, e.g. a reply that cannot be decoded.
var ErrInput = errors.New("the input cannot be applied")

// transition is one call of Definition.Advance.
type transition struct {
	advance
	d        *Definition // as the instance runs it
	root     scope       // the data of the instance
	items    map[*Item]*scope
	isolated bool // see Input.Isolated
}

// Advance returns the instance after an input, and what is to be done. It changes nothing that it is given. The revision rises
// by one, unless the input is ignored. The error matches ErrInput if the input cannot be applied; any other is a failure to
// read the data.
func (d *Definition) Advance(p Policy, in Instance, input Input) (Instance, Output, error) {
	in.State = in.State.clone()
	if v := input.Verb; v != nil && v.Kind == VerbMigrate {
		if out, refused := d.migrate(p, &in, v); refused {
			return in, out, nil
		}
	}
	t := &transition{
		advance: advance{p: p, in: &in, s: &in.State, age: max(input.Age, 0)}, d: d.For(&in.State), items: make(map[*Item]*scope), isolated: input.Isolated,
	}
	t.root = scope{ItemCodec: ItemCodec{d.Decode, d.Encode}, json: &in.Data}
	var err error
	if t.root.data, err = d.Decode(in.Data); err != nil {
		return in, Output{}, fmt.Errorf("decode the data of instance %s: %w", in.ID, err)
	}
	if err := t.apply(input); err != nil {
		return in, Output{}, err
	}
	if t.out.Ignored {
		return in, t.out, nil
	}
	if t.out.Refused == "" {
		t.proceed()
	}
	t.setTimer(input.Age)
	t.out.Passed = t.passed()
	in.Rev++
	return in, t.out, nil
}

func (t *transition) apply(input Input) error {
	switch {
	case input.Start != nil:
		t.event("started", "", "")
		t.s.Deadline = t.d.Deadline
		return nil
	case input.Reply != nil:
		return t.reply(input.Reply)
	case input.Timer != nil:
		t.timer(input.Timer)
		return nil
	case input.Signal != nil:
		return t.signal(*input.Signal)
	case input.Verb != nil:
		t.operate(t, input.Verb)
		return nil
	case input.Parent != nil:
		return t.wished(*input.Parent)
	}
	return fmt.Errorf("%w: it is empty", ErrInput)
}

// proceed does what the statuses of the steps ask for: it runs steps, undoes them, or ends the instance.
func (t *transition) proceed() {
	if t.s.Ended != "" || t.s.Paused {
		return
	}
	if !t.s.Back && t.run(t.d.Steps) && !t.s.anyStep((*StepState).open) { // a late effect of a step may have to be undone
		t.end(Completed, t.d.OnCompleted)
		return
	}
	if t.s.Back && t.undo(t.d.Steps) {
		if t.s.anyStep(func(st *StepState) bool { return st.Status == StepReleased }) {
			t.end(Abandoned, nil)
			return
		}
		t.end(Compensated, t.d.OnCompensated)
	}
}

// end ends the instance. If its announcement cannot be built, it is stuck instead.
func (t *transition) end(status Status, announce Builder) {
	st := t.s.Steps[endPath]
	if announce != nil && !st.finished() {
		if st == nil {
			st = &StepState{}
			t.s.Steps[endPath] = st
		}
		if st.Status == StepStuck {
			return
		}
		var m *postrider.Message
		if err := t.protected(func() (err error) {
			if m, err = announce(t.root.value()); err == nil && m != nil {
				err = t.check(m)
			}
			return err
		}); err != nil {
			t.stuck(endPath, st, fmt.Sprintf("announce the end: %v", err))
			return
		}
		st.Status = StepDone
		t.out.Announcement = m
	}
	t.ended(status)
	t.answerParent()
}

// turn changes the direction to back.
func (t *transition) turn(c Cause) {
	t.s.Back, t.s.TurnedAt, t.s.Cause, t.s.Deadline = true, t.age, &c, 0
	t.event("turned back", c.Step, string(c.Kind))
	for _, s := range t.d.order {
		st := t.s.Steps[s.Path]
		if st == nil || st.Status == StepUndoing {
			continue
		}
		st.Due, st.Attempt = 0, 0
		switch {
		case st.Status == StepStuck && st.Owed:
			st.Status, st.Reason = StepUnknown, ""
		case st.Status == StepStuck: // nothing of it was started
			st.Status, st.Reason = StepSkipped, ""
			t.event("step.skipped", s.Path, "turned back")
		}
	}
	delete(t.s.Steps, endPath)
}

// passed says whether a pivot is done, so that there is no way back.
func (t *transition) passed() bool { return t.d.passed(t.s) }

func (d *Definition) passed(state *State) bool {
	for _, s := range d.order {
		if st := state.Steps[s.Path]; s.Pivot && st != nil && st.Status == StepDone {
			return true
		}
	}
	return false
}

// errPanic: a function of the definition panicked.
var errPanic = errors.New("panic")

// protected calls a function of the definition, and turns a panic into an error.
func (t *transition) protected(f func() error) error {
	if t.isolated {
		return protect.Call(f, func(v any, _ string) error { return fmt.Errorf("%w: %v", errPanic, v) })
	}
	return protect.Here(f, func(v any) error { return fmt.Errorf("%w: %v", errPanic, v) })
}

// isolated calls a function of the contract. A panic is an error of this contract: others may know the message.
func isolated(f func() error) error {
	return protect.Call(f, func(v any, _ string) error { return fmt.Errorf("%w: %v", errPanic, v) })
}

// guarded calls a function of the definition. If it panics or fails, the data are as before and the step is stuck. It reports
// whether the call succeeded.
func (t *transition) guarded(s *Step, st *StepState, what string, call func(data any) error) bool {
	sc := t.scope(s)
	err := t.protected(func() error { return call(sc.value()) })
	if err == nil {
		return true
	}
	sc.data = nil
	t.stuck(s.Path, st, fmt.Sprintf("%s: %v", what, err))
	return false
}

// change calls a function of the definition that changes the data, and checks what it leaves.
func (t *transition) change(s *Step, st *StepState, what string, call func(data any)) bool {
	sc := t.scope(s)
	return t.guarded(s, st, what, func(data any) error {
		call(data)
		text, err := sc.Encode(sc.data)
		if err != nil {
			return fmt.Errorf("encode the data: %w", err)
		}
		return t.keep(sc, text)
	})
}

// keep makes JSON the data that are stored, unless they are too large.
func (t *transition) keep(sc *scope, text json.RawMessage) error {
	if err := t.fits(len(text) - len(*sc.json)); err != nil {
		return err
	}
	*sc.json = text
	return nil
}

// fits says why data cannot grow by a number of bytes.
func (t *transition) fits(by int) error {
	if t.p.MaxState == 0 || by <= 0 {
		return nil
	}
	if size := t.s.size(*t.root.json) + by; size > t.p.MaxState {
		return fmt.Errorf("the data would have %d bytes, more than MaxState (%d)", size, t.p.MaxState)
	}
	return nil
}
