package machine

import (
	"errors"
	"fmt"
	"hash/fnv"
	"time"
)

// undoSuffix is what the type of an undo adds to that of its command.
const undoSuffix = ".undo"

// UndoType is the message type of the undo of a command.
func UndoType(command string) string { return command + undoSuffix }

// ErrInput marks an input that can never be applied, e.g. a reply that cannot be decoded.
var ErrInput = errors.New("the input cannot be applied")

// transition is one call of Advance.
type transition struct {
	d    *Definition
	p    Policy
	in   *Instance
	s    *State // of in
	age  time.Duration
	data any
	out  Output
}

// Advance returns the instance after an input, and what is to be done. It changes nothing that it is given. The revision rises
// by one, unless the input is ignored. The error matches ErrInput if the input cannot be applied; any other is a failure to
// read or write the data.
func (d *Definition) Advance(p Policy, in Instance, input Input) (Instance, Output, error) {
	in.State = in.State.clone()
	t := &transition{d: d, p: p, in: &in, s: &in.State, age: input.Age}
	data, err := d.Decode(in.Data)
	if err != nil {
		return in, Output{}, fmt.Errorf("decode the data of instance %s: %w", in.ID, err)
	}
	t.data = data
	if err := t.apply(input); err != nil {
		return in, Output{}, err
	}
	if t.out.Ignored {
		return in, t.out, nil
	}
	if t.out.Refused == "" {
		t.proceed()
	}
	if in.Data, err = d.Encode(t.data); err != nil {
		return in, Output{}, fmt.Errorf("encode the data of instance %s: %w", in.ID, err)
	}
	t.setTimer()
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
		t.verb(input.Verb)
		return nil
	}
	return fmt.Errorf("%w: it is empty", ErrInput)
}

func (t *transition) event(what, step, note string) {
	t.out.Events = append(t.out.Events, Event{What: what, Step: step, Note: note})
}

// proceed does what the statuses of the steps ask for: it runs steps, undoes them, or ends the instance.
func (t *transition) proceed() {
	if t.s.Ended != "" || t.s.Paused {
		return
	}
	if !t.s.Back && t.run(t.d.Steps) {
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
		m, err := announce(t.data)
		if err != nil {
			t.stuck(endPath, st, fmt.Sprintf("announce the end: %v", err))
			return
		}
		st.Status = StepDone
		t.out.Announcement = m
	}
	t.s.Ended, t.s.Deadline = status, 0
	for _, st := range t.s.Steps {
		st.Due = 0
	}
	t.event(string(status), "", "")
}

// turn changes the direction to back.
func (t *transition) turn(c Cause) {
	t.s.Back, t.s.Cause, t.s.Deadline = true, &c, 0
	t.event("turned back", c.Step, string(c.Kind))
	for _, s := range t.d.order {
		st := t.s.Steps[s.Path]
		if st == nil || st.Status == StepUndoing {
			continue
		}
		st.Due, st.Attempt = 0, 0
		if st.Status == StepStuck && st.Owed {
			st.Status, st.Reason = StepUnknown, ""
		}
	}
	delete(t.s.Steps, endPath)
}

// passed says whether a pivot is done, so that there is no way back.
func (t *transition) passed() bool {
	for _, s := range t.d.order {
		if st := t.s.Steps[s.Path]; s.Pivot && st != nil && st.Status == StepDone {
			return true
		}
	}
	return false
}

// stuck leaves a step to an operator.
func (t *transition) stuck(path string, st *StepState, reason string) {
	st.Status, st.Due, st.Reason = StepStuck, 0, reason
	t.event("step.stuck", path, reason)
}

// guarded calls a function of the definition, and makes the step stuck if it panics. It reports whether the call returned.
func (t *transition) guarded(s *Step, st *StepState, what string, call func()) (returned bool) {
	defer func() {
		if v := recover(); v != nil {
			t.stuck(s.Path, st, fmt.Sprintf("%s: panic: %v", what, v))
			returned = false
		}
	}()
	call()
	return true
}

// setTimer sets the instance's timer if it has none, or one that fires too late.
func (t *transition) setTimer() {
	if t.s.Paused || t.s.Ended != "" {
		return
	}
	next := t.s.Deadline
	for _, st := range t.s.Steps {
		if st.Due > 0 && (next == 0 || st.Due < next) {
			next = st.Due
		}
	}
	if next == 0 || t.s.Timer.At > 0 && t.s.Timer.At <= next {
		return
	}
	t.s.Timer = Timer{ID: t.s.Timer.ID + 1, At: next}
	t.out.Timer = &TimerSet{ID: t.s.Timer.ID, After: max(next-t.age, time.Millisecond)}
}

// backoff is the wait after a number of attempts: random between half of and the whole of BackoffBase·2^(attempts−1), at most
// BackoffMax. The random number is a hash, so that Advance stays a function of its arguments.
func (t *transition) backoff(path string, attempts int) time.Duration {
	wait := t.p.BackoffMax
	if shift := attempts - 1; shift < 30 {
		wait = min(wait, t.p.BackoffBase<<max(shift, 0))
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%s/%d", t.in.Run, path, attempts)
	return wait/2 + time.Duration(h.Sum64()%uint64(wait/2+1))
}
