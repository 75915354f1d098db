package machine

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
)

// started is a Child.
func started(child *Definition) *Step {
	return &Step{
		Kind: Child, Name: "pay", Message: child.Name, Child: child,
		ChildData: func(any) (json.RawMessage, error) { return json.RawMessage(`{}`), nil },
		Done:      func(data any, payload []byte) error { return json.Unmarshal(payload, data) },
	}
}

func wants(w Wish) Input { return Input{Parent: &w} }

// TestChildIsStartedOnce: a retry asks for the same instance again, and another one is started only after a refusal.
func TestChildIsStartedOnce(t *testing.T) {
	t.Parallel()
	broken := true
	step := started(saga(t, requested("charge")))
	done := step.Done
	step.Done = func(data any, payload []byte) error {
		if broken {
			panic("broken")
		}
		return done(data, payload)
	}
	d := saga(t, step, requested("mail"))
	in, out, err := d.Advance(testPolicy, Instance{Run: "run", Data: json.RawMessage(`{}`), State: State{Token: "token"}}, Input{Start: &Start{}})
	if err != nil || len(out.Commands) != 1 || out.Commands[0].Child == nil || out.Timer != nil {
		t.Fatalf("the start results in %+v (%v), want a child and no timer", out, err)
	}
	first := out.Commands[0].Child.ID
	completed := answer("pay", OutcomeDone)
	completed.Reply.Payload = []byte(`{"paid": true}`)
	in = next(t, d, in, completed)
	if st := in.State.Steps["pay"]; st.Status != StepStuck || !st.Owed {
		t.Fatalf("the step is %+v, want it stuck, and owed", st)
	}
	in, out, err = d.Advance(testPolicy, in, says(VerbRetry, "pay"))
	if err != nil || len(out.Commands) != 1 || out.Commands[0].Child.ID != first {
		t.Fatalf("a retry results in %+v (%v), want the same child", out.Commands, err)
	}
	broken = false
	if in = next(t, d, in, completed); string(in.Data) != `{"paid":true}` {
		t.Errorf("the data are %s", in.Data)
	}

	pivot := requested("ship")
	pivot.Pivot = true
	d = saga(t, pivot, started(saga(t, requested("charge"))))
	in = after(t, d, `{}`, answer("ship", OutcomeDone), answer("pay", OutcomeRefused))
	before := in.State.Steps["pay"].Child
	if in = next(t, d, in, says(VerbRetry, "pay")); in.State.Steps["pay"].Child == before {
		t.Error("after a refusal, a retry starts the same child again")
	}
}

// TestChildAnswerIsNotLost: an answer that cannot be read leaves the step to an operator, since there is no other and no timeout. A retry
// asks for it again.
func TestChildAnswerIsNotLost(t *testing.T) {
	t.Parallel()
	d := saga(t, started(saga(t, requested("charge"))), requested("mail"))
	readable, garbled := answer("pay", OutcomeDone), answer("pay", OutcomeDone)
	readable.Reply.Payload, garbled.Reply.Payload = []byte(`{"paid": true}`), []byte(`{"paid"`)
	in := after(t, d, `{}`, garbled)
	if st := in.State.Steps["pay"]; st.Status != StepStuck || !st.Owed || st.Reason == "" {
		t.Fatalf("the step is %+v, want it stuck, and owed", st)
	}
	in, out, err := d.Advance(testPolicy, in, says(VerbRetry, "pay"))
	if err != nil || len(out.Commands) != 1 || out.Commands[0].Child == nil {
		t.Fatalf("a retry results in %+v (%v), want the child to be asked", out.Commands, err)
	}
	in = next(t, d, in, readable)
	if string(in.Data) != `{"paid":true}` {
		t.Errorf("the data are %s", in.Data)
	}
	if _, _, err := d.Advance(testPolicy, in, garbled); !errors.Is(err, ErrInput) {
		t.Errorf("another one after the step is done: %v, want %v", err, ErrInput)
	}
}

// TestChildAnswers: how an instance tells its parent about its end, by what the parent wants and when.
func TestChildAnswers(t *testing.T) {
	t.Parallel()
	plain := saga(t, requested("reserve"), requested("charge"))
	pivot := saga(t, pivotal(requested("reserve")), requested("charge"))
	doneBoth := []Input{answer("reserve", OutcomeDone), answer("charge", OutcomeDone)}
	for name, tt := range map[string]struct {
		d      *Definition
		inputs []Input
		want   Outcome
	}{
		"completed":                      {plain, doneBoth, OutcomeDone},
		"compensated":                    {plain, []Input{answer("reserve", OutcomeRefused)}, OutcomeRefused},
		"abandoned":                      {plain, []Input{says(VerbAbandon, "")}, OutcomeNoRecord},
		"undone while running":           {plain, []Input{wants(WishUndo), answer("reserve", OutcomeUndone)}, OutcomeUndone},
		"undone while compensating":      {plain, []Input{answer("reserve", OutcomeDone), answer("charge", OutcomeRefused), wants(WishUndo), answer("reserve", OutcomeUndone)}, OutcomeUndone},
		"undone after completion":        {plain, append(slices.Clone(doneBoth), wants(WishUndo), answer("charge", OutcomeUndone), answer("reserve", OutcomeUndone)), OutcomeUndone},
		"undone after compensation":      {plain, []Input{answer("reserve", OutcomeRefused), wants(WishUndo)}, OutcomeUndone},
		"undone after being abandoned":   {plain, []Input{says(VerbAbandon, ""), wants(WishUndo)}, OutcomeNoRecord},
		"past its pivot":                 {pivot, []Input{answer("reserve", OutcomeDone), wants(WishUndo), answer("charge", OutcomeDone)}, OutcomeCannotUndo},
		"completed with a pivot":         {pivot, append(slices.Clone(doneBoth), wants(WishUndo)), OutcomeCannotUndo},
		"pivot done and nobody knows it": {pivot, []Input{wants(WishUndo), answer("reserve", OutcomeCannotUndo), answer("charge", OutcomeDone)}, OutcomeCannotUndo},
		"asked again":                    {plain, append(slices.Clone(doneBoth), wants(WishAnswer)), OutcomeDone},
	} {
		in := Instance{ID: "child", Run: "run", Data: json.RawMessage(`{}`), State: State{Token: "token", Parent: &Parent{ID: "42", Run: "p", Step: "pay"}}}
		var out Output
		for i, input := range append([]Input{{Start: &Start{}}}, tt.inputs...) {
			var err error
			if in, out, err = tt.d.Advance(testPolicy, in, input); err != nil || out.Refused != "" {
				t.Fatalf("%s: input %d: %v, %+v", name, i, err, out)
			}
			if (out.Answer != nil) != (in.State.Ended != "") {
				t.Errorf("%s: after input %d it is %s, and the answer is %+v", name, i, in.State.Status(), out.Answer)
			}
		}
		if out.Answer == nil || out.Answer.Outcome != tt.want || out.Answer.SentAs != "pay" {
			t.Errorf("%s: the answer is %+v, want %s", name, out.Answer, tt.want)
		}
	}
}

// TestChildCloses: the participants of an instance keep their records as long as its parent can want it undone.
func TestChildCloses(t *testing.T) {
	t.Parallel()
	d := saga(t, requested("reserve"))
	in := Instance{ID: "child", Run: "run", Data: json.RawMessage(`{}`), State: State{Token: "token", Parent: &Parent{ID: "42", Step: "pay"}}}
	in = next(t, d, next(t, d, in, Input{Start: &Start{}}), answer("reserve", OutcomeDone))
	if in.State.Closes() {
		t.Error("a completed child closes the records of its participants")
	}
	if closed := next(t, d, in, wants(WishClose)); !closed.State.Closes() || closed.State.Ended != Completed {
		t.Errorf("a child that its parent has closed is %s and closes: %t", closed.State.Ended, closed.State.Closes())
	}
	if undone := next(t, d, next(t, d, in, wants(WishUndo)), answer("reserve", OutcomeUndone)); !undone.State.Closes() {
		t.Error("a compensated child does not close the records of its participants")
	}
	if out, _ := d.operateOn(in, VerbCancel); out.Refused == "" {
		t.Error("a child that has ended is cancelled")
	}
	running := next(t, d, Instance{ID: "child", Run: "run", Data: json.RawMessage(`{}`), State: State{Token: "token", Parent: &Parent{ID: "42", Step: "pay"}}},
		Input{Start: &Start{}})
	if out, _ := d.operateOn(running, VerbCancel); out.Refused == "" {
		t.Error("a child is cancelled by itself")
	}
}

func (d *Definition) operateOn(in Instance, kind VerbKind) (Output, error) {
	_, out, err := d.Advance(testPolicy, in, says(kind, ""))
	return out, err
}

// TestWordOfAnOperator: a child past the pivot was abandoned, so nobody can confirm what an operator says about its step. What the operator
// says again holds.
func TestWordOfAnOperator(t *testing.T) {
	t.Parallel()
	d := saga(t, pivotal(requested("ship")), started(saga(t, requested("charge"))), requested("mail"))
	stuck := after(t, d, `{}`, answer("ship", OutcomeDone), answer("pay", OutcomeNoRecord))
	for _, first := range []VerbKind{VerbDone, VerbSkip} {
		in := next(t, d, stuck, says(first, "pay"))
		if st := in.State.Steps["pay"]; st.Status != StepUndoing {
			t.Fatalf("after the first %s, the step is %+v, want its undo sent", first, st)
		}
		in = next(t, d, in, answer("pay", OutcomeNoRecord))
		for verb, want := range map[VerbKind]StepStatus{VerbDone: StepDone, VerbSkip: StepSkipped} {
			decided := next(t, d, in, says(verb, "pay"))
			st := decided.State.Steps["pay"]
			if st.Status != want || st.Owed != (verb == VerbDone) || !slices.Equal(decided.State.Waiting(), []string{"mail"}) {
				t.Errorf("%s, then %s: the step is %+v and the instance waits for %q", first, verb, st, decided.State.Waiting())
				continue
			}
			back := next(t, d, decided, says(VerbCompensate, ""))
			back = next(t, d, back, answer("mail", OutcomeUndone))
			if st := back.State.Steps["pay"]; (st.Status == StepStuck) != (verb == VerbDone) {
				t.Errorf("%s, then %s: turned back, the step is %+v", first, verb, st)
			}
		}
		patched := says(VerbDone, "pay")
		patched.Verb.Patch = json.RawMessage(`7`)
		refused, out, err := d.Advance(testPolicy, in, patched)
		if st := refused.State.Steps["pay"]; err != nil || out.Refused == "" || !st.Owed || st.Status != StepStuck {
			t.Errorf("a patch that is no object: %+v (%v), and the step is %+v", out, err, st)
		}
	}
}
