package machine

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
)

// definition has a request after another; the command of the second panics for data that say so.
func definition(t *testing.T) *Definition {
	t.Helper()
	request := func(name string) *Step {
		return &Step{
			Kind: Request, Name: name, Message: name, Topic: name, Done: func(any, []byte) error { return nil },
			Command: func(data any) (*postrider.Message, error) {
				if name == "charge" && (*data.(*map[string]any))["panic"] == true {
					panic("asked to")
				}
				return &postrider.Message{Type: name, Topic: name}, nil
			},
		}
	}
	d := &Definition{
		Name: "orders", Version: 1, Steps: []*Step{request("reserve"), request("charge")},
		Decode: func(text []byte) (any, error) { data := new(map[string]any); return data, json.Unmarshal(text, data) },
		Encode: json.Marshal,
	}
	if err := d.Complete(); err != nil {
		t.Fatal(err)
	}
	return d
}

var testPolicy = Policy{
	StepTimeout: time.Second, UndoTimeout: time.Second, UndoAttempts: 1, LocalAttempts: 1, StuckAfter: time.Minute,
	BackoffBase: time.Millisecond, BackoffMax: time.Second, MaxSignals: 2,
}

// after returns an instance after inputs.
func after(t *testing.T, d *Definition, data string, inputs ...Input) Instance {
	t.Helper()
	in := Instance{ID: "42", Run: "run", Data: json.RawMessage(data), State: State{Token: "token"}}
	for _, input := range append([]Input{{Start: &Start{}}}, inputs...) {
		var out Output
		var err error
		if in, out, err = d.Advance(testPolicy, in, input); err != nil || out.Ignored || out.Refused != "" {
			t.Fatalf("input %+v: %v, %+v", input, err, out)
		}
	}
	return in
}

func answer(step string, o Outcome) Input {
	return Input{Reply: &Reply{SentAs: step, Token: "token", Outcome: o}}
}

// TestVerbs compares what the machine accepts with the table in docs/sagas.md: every verb in every status, but
// answer, which needs a question.
func TestVerbs(t *testing.T) {
	t.Parallel()
	d := definition(t)
	back := []Input{answer("reserve", OutcomeDone), answer("charge", OutcomeRefused)}
	states := map[string]struct {
		in   Instance
		step string
		want Status
	}{
		"running":       {after(t, d, `{}`), "reserve", Running},
		"compensating":  {after(t, d, `{}`, back...), "reserve", Compensating},
		"stuck forward": {after(t, d, `{"panic": true}`, answer("reserve", OutcomeDone)), "charge", Stuck},
		"stuck back":    {after(t, d, `{}`, append(back, answer("reserve", OutcomeCannotUndo))...), "reserve", Stuck},
		"paused":        {after(t, d, `{}`, Input{Verb: &Verb{Kind: VerbPause}}), "reserve", Running},
		"ended":         {after(t, d, `{}`, answer("reserve", OutcomeDone), answer("charge", OutcomeDone)), "reserve", Completed},
	}
	table := verbTable(t)
	if len(table) != 13 {
		t.Fatalf("docs/sagas.md has %d verbs, want 13", len(table))
	}
	delete(table, string(VerbAnswer))
	second := *d
	second.Version = 2
	for verb, cells := range table {
		by := d
		if verb == string(VerbMigrate) {
			by = &second
		}
		for name, state := range states {
			if got := state.in.State.Status(); got != state.want {
				t.Fatalf("the instance that should be %s is %s", name, got)
			}
			before, err := json.Marshal(state.in)
			if err != nil {
				t.Fatal(err)
			}
			next, out, err := by.Advance(testPolicy, state.in, Input{Verb: &Verb{
				Kind: VerbKind(verb), Step: state.step, Actor: "ann", Reason: "test", Patch: json.RawMessage(`{"panic": null}`),
				To: by.Version, From: d,
			}})
			if err != nil {
				t.Fatalf("%s in %s: %v", verb, name, err)
			}
			if got := out.Refused == ""; got != cells[name] {
				t.Errorf("%s in %s: accepted is %t (%s), docs/sagas.md says %t", verb, name, got, out.Refused, cells[name])
			}
			if out.Refused != "" && len(out.Commands) > 0 {
				t.Errorf("%s in %s was refused and sent %v", verb, name, out.Commands)
			}
			if now, err := json.Marshal(state.in); err != nil || string(now) != string(before) {
				t.Errorf("%s in %s changed the instance that it was given", verb, name)
			}
			if next.Rev != state.in.Rev+1 || len(out.Events) == 0 {
				t.Errorf("%s in %s: revision %d after %d, events %v; want it recorded", verb, name, next.Rev, state.in.Rev, out.Events)
			}
		}
	}
}

// TestAnswerInEveryStatus compares the row of answer in the same table: a question next to a step that is stuck can be answered, since its
// time does not stop.
func TestAnswerInEveryStatus(t *testing.T) {
	t.Parallel()
	parallel := definition(t).Steps
	d := saga(t, &Step{Kind: Parallel, Name: "both", Branches: append(parallel, &Step{
		Kind: Ask, Name: "review", Question: func(any) string { return "?" }, Options: []string{"yes"}, Timeout: time.Hour,
	})})
	back := []Input{answer("both/reserve", OutcomeDone), answer("both/charge", OutcomeRefused)}
	cells := verbTable(t)[string(VerbAnswer)]
	for name, in := range map[string]Instance{
		"running":       after(t, d, `{}`),
		"compensating":  after(t, d, `{}`, back...),
		"stuck forward": after(t, d, `{"panic": true}`),
		"stuck back":    after(t, d, `{}`, append(back, answer("both/reserve", OutcomeCannotUndo))...),
		"paused":        after(t, d, `{}`, Input{Verb: &Verb{Kind: VerbPause}}),
		"ended":         after(t, d, `{}`, says(VerbAbandon, "")),
	} {
		next, out, err := d.Advance(testPolicy, in, Input{Verb: &Verb{Kind: VerbAnswer, Step: "both/review", Option: "yes", Actor: "ann", Reason: "test"}})
		done := err == nil && next.State.Steps["both/review"].Status == StepDone
		if got := out.Refused == ""; got != cells[name] || got != done || got != slices.Contains(in.State.Asking(), "both/review") {
			t.Errorf("an answer in %s: accepted is %t (%s, %v), docs/sagas.md says %t; the questions are %q", name, got, out.Refused, err, cells[name], in.State.Asking())
		}
	}
}

// verbTable reads the table of verbs and statuses in docs/sagas.md.
func verbTable(t *testing.T) map[string]map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../../docs/sagas.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n| verb |")
	if !found {
		t.Fatal("docs/sagas.md has no table of verbs")
	}
	var columns []string
	table := make(map[string]map[string]bool)
	for i, line := range strings.Split("| verb |"+rest, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		switch {
		case !strings.HasPrefix(line, "|"):
			return table
		case i == 0:
			columns = cells[1:]
		case i > 1:
			row := make(map[string]bool)
			for c, cell := range cells[1:] {
				row[columns[c]] = cell == "yes"
			}
			table[cells[0]] = row
		}
	}
	return table
}

// TestMoreAboutVerbs: details that the table does not show.
func TestMoreAboutVerbs(t *testing.T) {
	t.Parallel()
	d := definition(t)
	running := after(t, d, `{}`)
	for name, tt := range map[string]struct {
		in   Instance
		verb Verb
		want string // in the refusal
	}{
		"an old revision":        {running, Verb{Kind: VerbCancel, Rev: 7}, "moved on from revision 7 to 1"},
		"an unknown verb":        {running, Verb{Kind: "explode", Step: "reserve"}, `"explode" is not a verb`},
		"a step of another saga": {running, Verb{Kind: VerbSkip, Step: "ship"}, `no step "ship"`},
		"a step not started":     {running, Verb{Kind: VerbSkip, Step: "charge"}, `no step "charge"`},
		"retry of one that is not stuck": {
			after(t, d, `{"panic": true}`, answer("reserve", OutcomeDone)), Verb{Kind: VerbRetry, Step: "reserve"}, "nothing is stuck at step reserve"},
		"data of no use": {running, Verb{Kind: VerbEdit, Patch: json.RawMessage(`[1]`)}, "not a JSON object"},
		"no question":    {running, Verb{Kind: VerbAnswer, Step: "reserve", Option: "yes"}, "asks nothing"},
	} {
		_, out, err := d.Advance(testPolicy, tt.in, Input{Verb: &tt.verb})
		if err != nil || !strings.Contains(out.Refused, tt.want) {
			t.Errorf("%s: refused %q (%v), want %q", name, out.Refused, err, tt.want)
		}
	}
}

// TestTimesStandStillDuringAPause: what a reply during a pause sets in motion happens as long after the resumption as it would have happened after
// the reply: an undo that failed is sent again after its backoff, and an effect that came after its undo is undone at once.
func TestTimesStandStillDuringAPause(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	d := definition(t)
	p := testPolicy
	p.UndoAttempts, p.StuckAfter = 3, 365*day
	undoing := []Input{answer("reserve", OutcomeDone), {Verb: &Verb{Kind: VerbCancel}}, answer("charge", OutcomeUndone)}
	for name, reply := range map[string]Reply{
		"failed undo": {SentAs: "reserve", Token: "token", Outcome: OutcomeFailed, Refusal: Refusal{Text: "not now"}},
		"late effect": {SentAs: "charge", Token: "token", Outcome: OutcomeDone, Unrecorded: true},
	} {
		in := after(t, d, `{}`, undoing...)
		var out Output
		for _, input := range []Input{
			{Age: time.Minute, Verb: &Verb{Kind: VerbPause}}, {Age: 2 * day, Reply: &reply}, {Age: 5 * day, Verb: &Verb{Kind: VerbResume}},
		} {
			var err error
			if in, out, err = d.Advance(p, in, input); err != nil || out.Ignored || out.Refused != "" {
				t.Fatalf("%s: input %+v: %v, %+v", name, input, err, out)
			}
		}
		if wait := in.State.Steps[reply.SentAs].Due - 5*day; in.State.Status() != Compensating || wait < 0 || wait > 2*time.Second {
			t.Errorf("%s: the instance is %s and the step is due %s after the resumption, want within 2s", name, in.State.Status(), wait)
		}
	}
}

// TestEndEndsThePause: an instance that an operator completed while it was paused can be turned back later, and then nothing stands still.
func TestEndEndsThePause(t *testing.T) {
	t.Parallel()
	d := saga(t, requested("reserve"), requested("charge"))
	in := Instance{ID: "child", Run: "run", Data: json.RawMessage(`{}`), State: State{Token: "token", Parent: &Parent{ID: "42", Step: "pay"}}}
	for _, input := range []Input{
		{Start: &Start{}}, answer("reserve", OutcomeDone), answer("charge", OutcomeNoRecord), says(VerbPause, ""), says(VerbComplete, ""), wants(WishUndo),
	} {
		in = next(t, d, in, input)
	}
	if got := in.State.Steps["charge"].Status; got != StepUndoing {
		t.Errorf("a child that its parent turns back: charge is %s, want its undo sent", got)
	}

	r := begin(t, shop(t, func(c *Contract) { c.CancelWithin, c.Events[3].NoUndo = 3*time.Hour, true }))
	r.sees("reserved", "charged", "confirmed").fires().is(Stuck) // without its start
	r.says(VerbPause, "").says(VerbComplete, "").is(Completed).says(VerbCancel, "").is(Compensating)
	if len(r.sent()) == 0 {
		t.Errorf("an instance of a contract that is cancelled sends nothing: %s", r.events())
	}
}
