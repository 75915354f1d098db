package machine

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
)

// saga returns a definition of steps whose data is a map.
func saga(t *testing.T, steps ...*Step) *Definition {
	t.Helper()
	d := untyped(steps...)
	if err := d.Complete(); err != nil {
		t.Fatal(err)
	}
	return d
}

func untyped(steps ...*Step) *Definition {
	return &Definition{
		Name: "orders", Version: 1, Steps: steps, Encode: json.Marshal,
		Decode: func(text []byte) (any, error) { data := new(map[string]any); return data, json.Unmarshal(text, data) },
	}
}

func requested(name string) *Step {
	return &Step{
		Kind: Request, Name: name, Message: name, Topic: name, Done: func(any, []byte) error { return nil },
		Command: func(any) (*postrider.Message, error) { return &postrider.Message{Type: name, Topic: name}, nil },
	}
}

func pivotal(s *Step) *Step {
	s.Pivot = true
	return s
}

func localStep(name string) *Step {
	return &Step{Kind: Local, Name: name, Run: func(context.Context, any, any) error { return nil }}
}

func undoable(s *Step) *Step {
	s.RunUndo, s.Undoes = s.Run, true
	return s
}

func says(kind VerbKind, step string) Input {
	return Input{Verb: &Verb{Kind: kind, Step: step, Actor: "ann", Reason: "test", Force: kind == VerbCompensate}}
}

// fires is the timer of an instance, at its time.
func fires(in Instance) Input {
	return Input{Age: in.State.Timer.At, Timer: &Fired{ID: in.State.Timer.ID}}
}

// TestFaultOfAFunction: what a function of the definition leaves cannot be stored or sent. The step is stuck, and the data are as
// they were.
func TestFaultOfAFunction(t *testing.T) {
	t.Parallel()
	p := testPolicy
	p.MaxState = 100
	p.Check = func(m *postrider.Message) error {
		if len(m.Key) > 3 {
			return errors.New("the key is too long")
		}
		return nil
	}
	key := func(s *Step) *Step {
		s.Command = func(data any) (*postrider.Message, error) {
			k, _ := (*data.(*map[string]any))["key"].(string)
			return &postrider.Message{Type: "ship", Topic: "ship", Key: k}, nil
		}
		return s
	}
	for name, tt := range map[string]struct {
		timedOut func(data map[string]any)
		step     string
		want     string // the data
	}{
		"a panic half way":              {func(data map[string]any) { data["a"] = 2; panic("asked to") }, "wait", `{"a":1}`},
		"data that JSON cannot write":   {func(data map[string]any) { data["a"] = math.NaN() }, "wait", `{"a":1}`},
		"data that are too large":       {func(data map[string]any) { data["a"] = strings.Repeat("x", 200) }, "wait", `{"a":1}`},
		"a command that cannot be sent": {func(data map[string]any) { data["key"] = "long" }, "ship", `{"a":1,"key":"long"}`},
		"nothing: the instance goes on": {func(data map[string]any) { data["key"] = "k" }, "", `{"a":1,"key":"k"}`},
	} {
		d := saga(t, &Step{
			Kind: Await, Name: "wait", Message: "reviewed", Timeout: time.Second, Done: func(any, []byte) error { return nil },
			TimedOut: func(data any) { tt.timedOut(*data.(*map[string]any)) },
		}, key(requested("ship")))
		in := after(t, d, `{"a":1}`)
		in, _, err := d.Advance(p, in, fires(in))
		if err != nil {
			t.Errorf("%s: %v, want a step that is stuck", name, err)
			continue
		}
		if st := in.State.Steps[tt.step]; tt.step != "" && (st == nil || st.Status != StepStuck || st.Reason == "") {
			t.Errorf("%s: step %s is %+v, want it stuck, with a reason", name, tt.step, st)
		}
		if string(in.Data) != tt.want {
			t.Errorf("%s: the data are %s, want %s", name, in.Data, tt.want)
		}
	}
}

// TestFaultOfTheAnnouncement: the end waits for an operator.
func TestFaultOfTheAnnouncement(t *testing.T) {
	t.Parallel()
	d := saga(t, requested("ship"))
	d.OnCompleted = func(any) (*postrider.Message, error) { return &postrider.Message{}, nil }
	p := testPolicy
	p.Check = func(m *postrider.Message) error {
		if m.Type == "" {
			return errors.New("the type is missing")
		}
		return nil
	}
	in, out, err := d.Advance(p, after(t, d, `{}`), answer("ship", OutcomeDone))
	if err != nil || in.State.Status() != Stuck || out.Announcement != nil {
		t.Errorf("the instance is %s (%v) and announces %+v; want it stuck", in.State.Status(), err, out.Announcement)
	}
}

// TestPanicTwice: what a function changed before it panicked is not counted again when it is retried.
func TestPanicTwice(t *testing.T) {
	t.Parallel()
	r, calls := requested("reserve"), 0
	r.Done = func(data any, _ []byte) error {
		m := *data.(*map[string]any)
		m["total"] = m["total"].(float64) + 10
		if calls++; calls <= 2 { // once to see whether it can be decoded, once to apply it
			panic("half way")
		}
		return nil
	}
	d := saga(t, r, requested("ship"))
	in := after(t, d, `{"total":0}`, answer("reserve", OutcomeDone), says(VerbRetry, ""), answer("reserve", OutcomeDone))
	if string(in.Data) != `{"total":10}` {
		t.Errorf("the data are %s, want a total of 10", in.Data)
	}
}

// TestDataOfOthers: data change only where a function of the definition changes them.
func TestDataOfOthers(t *testing.T) {
	t.Parallel()
	const data = `{"n": 12345678901234567890}`
	d := saga(t, requested("reserve"), requested("ship"))
	in := after(t, d, data)
	if in = after(t, d, data, fires(in)); string(in.Data) != data {
		t.Errorf("after a timer the data are %s, want %s", in.Data, data)
	}
}

// TestUndoneBeforeItsTurn: only a step whose undo was sent can be undone by hand. Otherwise a pivot that turns out to be done
// would continue an instance without it.
func TestUndoneBeforeItsTurn(t *testing.T) {
	t.Parallel()
	d := saga(t, requested("reserve"), pivotal(requested("charge")), requested("ship"))
	in := after(t, d, `{}`, answer("reserve", OutcomeDone))
	in, _, _ = d.Advance(testPolicy, in, fires(in))
	if st := in.State.Steps["charge"]; st.Status != StepUndoing {
		t.Fatalf("charge is %s, want its undo sent", st.Status)
	}
	in, out, err := d.Advance(testPolicy, in, says(VerbUndone, "reserve"))
	if err != nil || out.Refused == "" {
		t.Errorf("undone is accepted (%v), want it refused", err)
	}
	in, _, err = d.Advance(testPolicy, in, answer("charge", OutcomeCannotUndo))
	if got := in.State.Waiting(); err != nil || !slices.Equal(got, []string{"ship"}) {
		t.Errorf("forward again, the instance waits for %v (%v), want ship", got, err)
	}
}

// TestLocalIsOwed: the effect of a local step is never left in place by an instance that ends compensated.
func TestLocalIsOwed(t *testing.T) {
	t.Parallel()
	local := func(step string) Input {
		return Input{Reply: &Reply{SentAs: step, Token: "token", Outcome: OutcomeDone, Data: []byte(`{}`)}}
	}
	t.Run("a pivot without an undo, forced back", func(t *testing.T) {
		t.Parallel()
		d := saga(t, requested("reserve"), pivotal(localStep("commit")), requested("ship"))
		in := after(t, d, `{}`, answer("reserve", OutcomeDone), local("commit"), says(VerbCompensate, ""), answer("ship", OutcomeUndone))
		if st := in.State.Steps["commit"]; in.State.Status() != Stuck || st.Status != StepStuck {
			t.Errorf("the instance is %s and commit is %s, want both stuck", in.State.Status(), st.Status)
		}
		in, out, err := d.Advance(testPolicy, in, says(VerbRetry, ""))
		if err != nil || in.State.Status() != Stuck || len(out.Commands) > 0 {
			t.Errorf("after a retry the instance is %s and sends %+v (%v); want it stuck again", in.State.Status(), out.Commands, err)
		}
	})
	t.Run("done by hand", func(t *testing.T) {
		t.Parallel()
		d := saga(t, undoable(localStep("book")), requested("ship"))
		in := after(t, d, `{}`, says(VerbDone, "book"), answer("ship", OutcomeRefused))
		if st := in.State.Steps["book"]; st.Status != StepStuck || !st.Owed {
			t.Errorf("book is %s, want it stuck until somebody undoes it by hand", st.Status)
		}
		if in = after(t, d, `{}`, says(VerbDone, "book"), answer("ship", OutcomeRefused), says(VerbUndone, "book")); in.State.Status() != Compensated {
			t.Errorf("the instance is %s, want it compensated", in.State.Status())
		}
	})
	t.Run("needs an undo unless a pivot is certain", func(t *testing.T) {
		t.Parallel()
		perhaps, continues := pivotal(requested("charge")), pivotal(requested("charge"))
		perhaps.OnlyIf = func(any) bool { return false }
		continues.Refused = func(any, Refusal) {}
		choose := func(last func(any) bool, other ...*Step) *Step {
			return &Step{Kind: Choose, Name: "pay", Cases: []Case{
				{Name: "card", If: func(any) bool { return false }, Steps: []*Step{pivotal(requested("charge"))}},
				{Name: "credit", If: last, Steps: other},
			}}
		}
		for name, tt := range map[string]struct {
			pivot *Step
			valid bool
		}{
			"a pivot":                     {pivotal(requested("charge")), true},
			"a pivot with OnlyIf":         {perhaps, false},
			"a pivot that may be refused": {continues, false},
			"one case has none":           {choose(nil, requested("debit")), false},
			"each case has one":           {choose(nil, pivotal(requested("debit"))), true},
			"no case may apply":           {choose(func(any) bool { return false }, pivotal(requested("debit"))), false},
		} {
			if err := untyped(tt.pivot, localStep("book")).Complete(); (err == nil) != tt.valid {
				t.Errorf("%s: %v, valid should be %t", name, err, tt.valid)
			}
		}
	})
}

// TestNamesThatWereSentStay: later attempts and the undo go where the first command went.
func TestNamesThatWereSentStay(t *testing.T) {
	t.Parallel()
	r := requested("reserve")
	r.Attempts = 2
	d := saga(t, r)
	in := after(t, d, `{}`)
	r.Command = func(any) (*postrider.Message, error) {
		return &postrider.Message{Type: "reserve.new", Topic: "new", Key: "new"}, nil
	}
	for _, want := range []string{"reserve", "reserve.undo"} {
		next, out, err := d.Advance(testPolicy, in, fires(in))
		if err != nil || len(out.Commands) != 1 {
			t.Fatalf("commands %+v (%v), want one", out.Commands, err)
		}
		if m := out.Commands[0].Message; m.Type != want || m.Topic != "reserve" || m.Key != "" {
			t.Errorf("sent type %q, topic %q, key %q; want %q, topic reserve", m.Type, m.Topic, m.Key, want)
		}
		in = next
	}
}

// TestTurnBackFromAStuckCondition: a Choose or Parallel whose condition panicked has started nothing, so nothing of it is stuck on
// the way back.
func TestTurnBackFromAStuckCondition(t *testing.T) {
	t.Parallel()
	bad := func(any) bool { panic("asked to") }
	for name, step := range map[string]*Step{
		"OnlyIf of a Choose":   {Kind: Choose, Name: "pay", OnlyIf: bad, Cases: []Case{{Name: "credit", Steps: []*Step{requested("debit")}}}},
		"If of a case":         {Kind: Choose, Name: "pay", Cases: []Case{{Name: "credit", If: bad, Steps: []*Step{requested("debit")}}}},
		"OnlyIf of a Parallel": {Kind: Parallel, Name: "pay", OnlyIf: bad, Branches: []*Step{requested("a"), requested("b")}},
	} {
		d := saga(t, requested("reserve"), step)
		in := after(t, d, `{}`, answer("reserve", OutcomeDone), says(VerbCancel, ""))
		if got := in.State.Status(); got != Compensating {
			t.Errorf("%s: the instance is %s, want compensating", name, got)
		}
		if _, out, err := d.Advance(testPolicy, in, says(VerbRetry, "")); err != nil || out.Refused == "" || len(out.Commands) > 0 {
			t.Errorf("%s: retry sends %+v (%v), want it refused", name, out.Commands, err)
		}
		if in = after(t, d, `{}`, answer("reserve", OutcomeDone), says(VerbCancel, ""), answer("reserve", OutcomeUndone)); in.State.Ended != Compensated {
			t.Errorf("%s: the instance is %s, want it compensated", name, in.State.Status())
		}
	}
}

// TestRetryOfAnUnconfirmedDone: an operator did a step by hand, and its participant cannot undo its part. A retry asks the
// participant again, in both directions.
func TestRetryOfAnUnconfirmedDone(t *testing.T) {
	t.Parallel()
	d := saga(t, requested("charge"), requested("ship"))
	for name, turn := range map[string][]Input{"forward": nil, "back": {says(VerbCompensate, "")}} {
		in := after(t, d, `{}`, append([]Input{says(VerbDone, "charge")}, turn...)...)
		for in.State.Steps["charge"].Status != StepStuck {
			next, _, err := d.Advance(testPolicy, in, answer("charge", OutcomeFailed))
			if err != nil {
				t.Fatal(err)
			}
			if next.State.Steps["charge"].Status == StepUndoing {
				if next, _, err = d.Advance(testPolicy, next, fires(next)); err != nil {
					t.Fatal(err)
				}
			}
			in = next
		}
		in, out, err := d.Advance(testPolicy, in, says(VerbRetry, ""))
		if st := in.State.Steps["charge"]; err != nil || len(out.Commands) != 1 || !out.Commands[0].Undo {
			t.Errorf("%s: retry sends %+v (%v), want the undo; charge is %s (%s)", name, out.Commands, err, st.Status, st.Reason)
		}
	}
}

// TestRetryKeepsSince: a participant compares when a command was first sent with the age of its records.
func TestRetryKeepsSince(t *testing.T) {
	t.Parallel()
	d := saga(t, pivotal(requested("pay")), requested("ship"))
	in := after(t, d, `{}`, answer("pay", OutcomeDone))
	late := Input{Age: 2 * time.Minute, Timer: &Fired{ID: in.State.Timer.ID}}
	in, _, err := d.Advance(testPolicy, in, late)
	if err != nil || in.State.Status() != Stuck {
		t.Fatalf("the instance is %s (%v), want it stuck", in.State.Status(), err)
	}
	retry := says(VerbRetry, "")
	retry.Age = time.Hour
	in, out, err := d.Advance(testPolicy, in, retry)
	if err != nil || len(out.Commands) != 1 || out.Commands[0].Since != 0 {
		t.Errorf("sent %+v (%v), want a command that was first sent at 0s", out.Commands, err)
	}
	in, out, err = d.Advance(testPolicy, in, fires(in))
	if err != nil || in.State.Status() == Stuck || len(out.Commands) != 1 {
		t.Errorf("after its timeout the instance is %s (%v), want the command sent again", in.State.Status(), err)
	}
}

// TestTimesHaveAMaximum: so that sums of them do not overflow.
func TestTimesHaveAMaximum(t *testing.T) {
	t.Parallel()
	wait := &Step{Kind: Await, Name: "wait", Message: "reviewed", Timeout: math.MaxInt64, Done: func(any, []byte) error { return nil }}
	if err := untyped(requested("reserve"), wait).Complete(); err == nil {
		t.Error("a timeout of 292 years is accepted")
	}
	d := untyped(requested("reserve"))
	if d.Deadline = math.MaxInt64; d.Complete() == nil {
		t.Error("a deadline of 292 years is accepted")
	}
}

// TestPatchIsAnObject: nothing else can be meant.
func TestPatchIsAnObject(t *testing.T) {
	t.Parallel()
	d := saga(t, requested("ship"))
	for _, patch := range []string{`null`, `[1]`, ``, `{"a":2} trailing`, `{"a":2}{}`} {
		edit := says(VerbEdit, "")
		edit.Verb.Patch = json.RawMessage(patch)
		in, out, err := d.Advance(testPolicy, after(t, d, `{"a":1}`), edit)
		if err != nil || out.Refused == "" || string(in.Data) != `{"a":1}` {
			t.Errorf("patch %s: the data are %s (%v), want it refused", patch, in.Data, err)
		}
	}
}

// TestSizeOfEarlySignals: what an instance keeps is limited in bytes, too.
func TestSizeOfEarlySignals(t *testing.T) {
	t.Parallel()
	p := testPolicy
	p.MaxState = 10
	d := saga(t, requested("reserve"), &Step{Kind: Await, Name: "wait", Message: "reviewed", Timeout: time.Hour, Done: func(any, []byte) error { return nil }})
	signal := func(id, payload string) Input {
		return Input{Signal: &Signal{ID: id, Type: "reviewed", Payload: []byte(payload)}}
	}
	in, _, err := d.Advance(p, after(t, d, `{}`), signal("1", "123456"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err = d.Advance(p, in, signal("2", "123456")); !errors.Is(err, ErrInput) {
		t.Errorf("12 bytes of signals: %v, want %v", err, ErrInput)
	}
}
