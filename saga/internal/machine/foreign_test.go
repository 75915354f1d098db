package machine

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// foreign is what a participant without records says about an attempt of a step.
func foreign(step string, o Outcome, attempt int) Input {
	in := answer(step, o)
	in.Reply.Unrecorded, in.Reply.Attempt = true, attempt
	return in
}

// undos are the numbers of the undos of a step that an input has sent.
func undos(out Output, step string) (numbers []int) {
	for _, c := range out.Commands {
		if c.Undo && c.SentAs == step {
			numbers = append(numbers, c.Attempt)
		}
	}
	return numbers
}

// effect is an input with the numbers of the undos that it must send, and the status that it must lead to.
type effect struct {
	input Input
	undos []int
	want  Status
}

func play(t *testing.T, d *Definition, in Instance, step string, history ...effect) Instance {
	t.Helper()
	for i, e := range history {
		e.input.Age = max(e.input.Age, time.Duration(i)) // as in a history
		var out Output
		var err error
		if in, out, err = d.Advance(testPolicy, in, e.input); err != nil {
			t.Fatalf("input %d: %v", i, err)
		}
		if got := undos(out, step); !slices.Equal(got, e.undos) || in.State.Status() != e.want {
			t.Fatalf("input %d sends the undos %v and the instance is %s, want %v and %s", i, got, in.State.Status(), e.undos, e.want)
		}
	}
	return in
}

// TestEachEffectIsUndoneOnce: a participant without records says several times that it did a step, before and after its undo. Each attempt
// has one effect, which is undone once, by an undo that was sent after it was known.
func TestEachEffectIsUndoneOnce(t *testing.T) {
	t.Parallel()
	d := saga(t, requested("reserve"), requested("charge"))
	play(t, d, after(t, d, `{}`), "reserve",
		effect{foreign("reserve", OutcomeDone, 1), nil, Running},
		effect{foreign("charge", OutcomeRefused, 1), []int{1}, Compensating},
		effect{foreign("reserve", OutcomeDone, 1), nil, Compensating},
		effect{foreign("reserve", OutcomeUndone, 1), nil, Compensated},
		effect{foreign("reserve", OutcomeDone, 1), nil, Compensated},
		effect{foreign("reserve", OutcomeDone, 2), []int{2}, Compensating},
		effect{foreign("reserve", OutcomeDone, 2), nil, Compensating},
		effect{foreign("reserve", OutcomeUndone, 1), nil, Compensating}, // repeated: this undo came before the second effect
		effect{foreign("reserve", OutcomeUndone, 2), nil, Compensated},
		effect{foreign("reserve", OutcomeDone, 0), []int{3}, Compensating}, // of no attempt
		effect{foreign("reserve", OutcomeUndone, 0), nil, Compensated},
	)
}

// TestRetriedEffectIsAnother: the attempts of a command that an operator retries have numbers of their own, so none of their effects is taken
// for that of an attempt from before.
func TestRetriedEffectIsAnother(t *testing.T) {
	t.Parallel()
	d := saga(t, pivotal(requested("pay")), requested("ship"), requested("mail"))
	in := after(t, d, `{}`, answer("pay", OutcomeDone))
	for in.State.Steps["ship"].Status != StepStuck {
		in = next(t, d, in, fires(in))
	}
	before := in.State.Steps["ship"].Attempt
	in, out, err := d.Advance(testPolicy, in, says(VerbRetry, "ship"))
	if err != nil || len(out.Commands) != 1 || out.Commands[0].Attempt != before+1 {
		t.Fatalf("retry sends %+v, %v; want attempt %d", out.Commands, err, before+1)
	}
	play(t, d, in, "ship",
		effect{foreign("ship", OutcomeDone, before+1), nil, Running},
		effect{says(VerbCompensate, ""), nil, Compensating},
		effect{answer("mail", OutcomeUndone), []int{before + 1}, Compensating},
		effect{foreign("ship", OutcomeUndone, before+1), nil, Compensating},
		effect{foreign("ship", OutcomeDone, before+1), nil, Compensating},
		effect{foreign("ship", OutcomeDone, 1), []int{before + 2}, Compensating},
	)
}

// TestDoneAfterRefused: a participant without records refuses an attempt, and another one has its effect.
func TestDoneAfterRefused(t *testing.T) {
	t.Parallel()
	d := saga(t, requested("reserve"), requested("charge"))
	play(t, d, after(t, d, `{}`), "reserve",
		effect{foreign("reserve", OutcomeRefused, 2), nil, Compensated},
		effect{foreign("reserve", OutcomeDone, 1), []int{1}, Compensating},
		effect{foreign("reserve", OutcomeUndone, 1), nil, Compensated},
		effect{foreign("reserve", OutcomeDone, 1), nil, Compensated},
	)
	// The saga continues without the step, and does not complete before it is undone.
	optional := taken("reserve")
	optional.Refused = func(any, Refusal) {}
	d = saga(t, listed(1, 1, optional), requested("charge"))
	in := play(t, d, after(t, d, `{}`), line(1),
		effect{foreign(line(1), OutcomeRefused, 2), nil, Running},
		effect{foreign(line(1), OutcomeDone, 1), []int{1}, Running},
		effect{answer("charge", OutcomeDone), nil, Running},
		effect{foreign(line(1), OutcomeUndone, 1), nil, Completed},
	)
	if st := in.State.Steps[line(1)]; st.Status != StepSkipped || st.Owed {
		t.Errorf("the step is %+v, want it skipped", st)
	}
	play(t, d, in, line(1), effect{foreign(line(1), OutcomeDone, 3), nil, Completed}) // as everything that comes after that
}

// TestSignalBeforeReopened: a signal that comes after a saga was compensated is kept if its pivot can turn out to be done after all: then the
// saga continues forward, and a step may wait for the signal. Otherwise it is late.
func TestSignalBeforeReopened(t *testing.T) {
	t.Parallel()
	review := Input{Signal: &Signal{ID: "s", Type: "reviewed", Payload: []byte(`{}`)}}
	steps := func(pivot bool) []*Step {
		charge := requested("charge")
		charge.Pivot, charge.NoUndo = pivot, pivot
		return []*Step{charge, {
			Kind: Await, Name: "review", Message: "reviewed", Timeout: NoTimeout, Done: func(any, []byte) error { return nil },
		}}
	}
	d := saga(t, steps(true)...)
	in := after(t, d, `{}`)
	play(t, d, in, "charge",
		effect{fires(in), []int{1}, Compensating},
		effect{foreign("charge", OutcomeUndone, 1), nil, Compensated},
		effect{review, nil, Compensated},
		effect{foreign("charge", OutcomeDone, 1), []int{2}, Compensating},
		effect{foreign("charge", OutcomeCannotUndo, 2), nil, Completed},
	)
	d = saga(t, steps(false)...)
	in = next(t, d, next(t, d, after(t, d, `{}`), says(VerbCancel, "")), answer("charge", OutcomeUndone))
	in, out, err := d.Advance(testPolicy, in, review)
	if err != nil || len(in.State.Signals) > 0 || len(out.Events) != 1 || out.Events[0].What != "late" {
		t.Errorf("without a pivot, the signal leads to %+v (%v), and %d are kept; want it late", out.Events, err, len(in.State.Signals))
	}
}

// TestReplyWithoutStep: a reply that does not name its step answers none, not one that was never sent.
func TestReplyWithoutStep(t *testing.T) {
	t.Parallel()
	d := saga(t, &Step{Kind: Ask, Name: "approve", Timeout: NoTimeout, Question: func(any) string { return "?" }, Options: []string{"yes", "no"}, Roles: []string{"boss"}})
	in := after(t, d, `{}`)
	for _, o := range []Outcome{OutcomeDone, OutcomeRefused, OutcomeUndone, OutcomeCannotUndo, OutcomeNoRecord} {
		got, out, err := d.Advance(testPolicy, in, foreign("", o, 1))
		if err == nil && (got.State.Steps["approve"].Status != StepWaiting || len(out.Commands) > 0) || err != nil && !errors.Is(err, ErrInput) {
			t.Errorf("%s: the step is %s, %v", o, got.State.Steps["approve"].Status, err)
		}
	}
}

// TestPivotMeetsALateEffect: a step that was skipped is undone again while nobody knows whether the pivot is done. It is, so the instance
// continues, and completes without the step.
func TestPivotMeetsALateEffect(t *testing.T) {
	t.Parallel()
	charge := pivotal(requested("charge"))
	charge.NoUndo = true
	d := saga(t, requested("reserve"), charge, requested("mail"))
	in := play(t, d, after(t, d, `{}`), "reserve",
		effect{says(VerbSkip, "reserve"), []int{1}, Running},
		effect{foreign("reserve", OutcomeUndone, 1), nil, Running},
		effect{foreign("reserve", OutcomeDone, 1), []int{2}, Running},
		effect{says(VerbCancel, ""), nil, Compensating},
		effect{foreign("reserve", OutcomeUndone, 2), nil, Compensating},
		effect{foreign("charge", OutcomeCannotUndo, 1), nil, Running},
		effect{foreign("mail", OutcomeDone, 1), nil, Completed},
	)
	if st := in.State.Steps["reserve"]; st.Status != StepSkipped {
		t.Errorf("the step is %s, want it skipped", st.Status)
	}
}

// TestPivotAfterUndo: a participant without records says that the pivot is done after it had confirmed its undo, so that the steps before it
// are undone. An operator decides, and is told why.
func TestPivotAfterUndo(t *testing.T) {
	t.Parallel()
	charge := pivotal(requested("charge"))
	charge.NoUndo = true
	d := saga(t, requested("reserve"), charge)
	in := play(t, d, after(t, d, `{}`), "charge",
		effect{foreign("reserve", OutcomeDone, 1), nil, Running},
		effect{says(VerbCancel, ""), []int{1}, Compensating},
		effect{foreign("charge", OutcomeUndone, 1), nil, Compensating},
		effect{foreign("reserve", OutcomeUndone, 1), nil, Compensated},
		effect{foreign("charge", OutcomeDone, 1), []int{2}, Compensating},
		effect{foreign("charge", OutcomeCannotUndo, 2), nil, Stuck},
	)
	if st := in.State.Steps["charge"]; !st.Owed || st.Reason != "the pivot is done and cannot be undone, and step reserve is undone" {
		t.Errorf("the pivot is %+v, want it owed, with the reason", st)
	}
	play(t, d, in, "charge", effect{says(VerbSkip, "charge"), nil, Abandoned})
}

// TestUndoneIsNoAnswerToACommand: a step whose undo was not sent still waits for its answer, and its time runs.
func TestUndoneIsNoAnswerToACommand(t *testing.T) {
	t.Parallel()
	d := saga(t, requested("reserve"), requested("charge"))
	in := next(t, d, after(t, d, `{}`), answer("reserve", OutcomeUndone))
	if st := in.State.Steps["reserve"]; st.Status != StepWaiting || st.Due == 0 || !st.Owed {
		t.Fatalf("the step is %+v, want it waiting", st)
	}
	in = next(t, d, in, fires(in))
	if in = next(t, d, in, answer("reserve", OutcomeUndone)); in.State.Status() != Compensated {
		t.Errorf("after its undo was confirmed, the instance is %s", in.State.Status())
	}
}

// TestSignalIsNotLost: a signal that came early cannot be applied when its step begins. It is applied when an operator retries the step.
func TestSignalIsNotLost(t *testing.T) {
	t.Parallel()
	broken := false
	d := saga(t, requested("reserve"), &Step{Kind: Await, Name: "paid", Message: "paid", Timeout: NoTimeout, Done: func(any, []byte) error {
		if broken {
			return errors.New("this build cannot read it")
		}
		return nil
	}})
	in := next(t, d, after(t, d, `{}`), Input{Signal: &Signal{ID: "s", Type: "paid"}})
	broken = true
	if in = next(t, d, in, answer("reserve", OutcomeDone)); in.State.Status() != Stuck {
		t.Fatalf("the instance is %s, want it stuck", in.State.Status())
	}
	broken = false
	if in = next(t, d, in, says(VerbRetry, "paid")); in.State.Status() != Completed {
		t.Errorf("after the retry, the instance is %s and waits for %q", in.State.Status(), in.State.Waiting())
	}
}

// TestSignalWhileThePivotIsUnknown: an instance that turned back can turn forward again, and its step takes the signal that arrived in between.
func TestSignalWhileThePivotIsUnknown(t *testing.T) {
	t.Parallel()
	read := func(any, []byte) error { return nil }
	d := saga(t, pivotal(requested("charge")), &Step{Kind: Await, Name: "delivered", Message: "delivered", Timeout: NoTimeout, Done: read})
	signal := func(id string) Input { return Input{Signal: &Signal{ID: id, Type: "delivered"}} }
	for name, turn := range map[string]Input{"cancelled": says(VerbCancel, ""), "timed out": fires(after(t, d, `{}`))} {
		in := after(t, d, `{}`, turn, signal("s"))
		if done := next(t, d, in, answer("charge", OutcomeCannotUndo)); done.State.Status() != Completed {
			t.Errorf("%s: after the pivot is done, the instance is %s and waits for %q", name, done.State.Status(), done.State.Waiting())
		}
		if undone := next(t, d, in, answer("charge", OutcomeUndone)); undone.State.Status() != Compensated {
			t.Errorf("%s: after the pivot is undone, the instance is %s", name, undone.State.Status())
		}
		if _, _, err := d.Advance(testPolicy, next(t, d, in, signal("s2")), signal("s3")); !errors.Is(err, ErrInput) {
			t.Errorf("%s: it keeps more than %d signals (%v)", name, testPolicy.MaxSignals, err)
		}
	}
}
