package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// listed is an Each over n items, whose steps are those given; Join notes the IDs of the items in the data.
func listed(n, window int, steps ...*Step) *Step {
	return &Step{
		Kind: Each, Name: "lines", Each: steps, Window: window,
		Codec: ItemCodec{
			Decode: func(text []byte) (any, error) { data := new(map[string]any); return data, json.Unmarshal(text, data) }, Encode: json.Marshal,
		},
		List: func(data any) (items []Item, err error) {
			if (*data.(*map[string]any))["twice"] == true {
				items = append(items, Item{ID: "1"})
			}
			for i := range n {
				items = append(items, Item{ID: fmt.Sprint(i + 1), Data: fmt.Appendf(nil, `{"n":%d}`, i+1)})
			}
			return items, nil
		},
		Join: func(data any, items []any) {
			var all []any
			for _, item := range items {
				all = append(all, (*item.(*map[string]any))["n"])
			}
			(*data.(*map[string]any))["joined"] = all
		},
	}
}

// taken is a request that writes its reply into the data.
func taken(name string) *Step {
	s := requested(name)
	s.Done = func(data any, _ []byte) error { (*data.(*map[string]any))[name] = true; return nil }
	return s
}

func line(i int) string { return fmt.Sprintf("lines[%d]/reserve", i) }

// sends says which steps have been sent a command or an undo and have not answered.
func sends(in Instance) (open []string) {
	for path, st := range in.State.Steps {
		if (st.Status == StepWaiting || st.Status == StepUndoing) && st.SentAs != "" {
			open = append(open, path)
		}
	}
	slices.Sort(open)
	return open
}

// TestEachWindow: no more items than the window are worked on or undone at a time, and one that is stuck holds up no other.
func TestEachWindow(t *testing.T) {
	t.Parallel()
	const n, window = 20, 3
	d := saga(t, listed(n, window, taken("reserve")), requested("charge"))
	in := after(t, d, `{}`)
	for i := range n {
		if open := sends(in); len(open) != min(window, n-i) {
			t.Fatalf("%d items are finished, and %q are open", i, open)
		}
		in = next(t, d, in, answer(line(i+1), OutcomeDone))
	}
	if open := sends(in); !slices.Equal(open, []string{"charge"}) || !strings.Contains(string(in.Data), `"joined":[1,2,`) {
		t.Fatalf("%q are open, and the data are %s", open, in.Data)
	}
	if items := in.State.Steps["lines"].Items; string(items[4].Data) != `{"n":5,"reserve":true}` {
		t.Errorf("item 5 is %s", items[4].Data)
	}
	in = next(t, d, in, answer("charge", OutcomeRefused))
	in = next(t, d, in, answer(line(n), OutcomeCannotUndo))
	for i := n - 1; i > 0; i-- {
		if open := sends(in); len(open) != min(window, i) {
			t.Fatalf("%d items are left, and %q are being undone", i, open)
		}
		in = next(t, d, in, answer(line(i), OutcomeUndone))
	}
	if owed := in.State.Owed(); in.State.Status() != Stuck || !slices.Equal(owed, []string{line(n)}) {
		t.Errorf("the instance is %s and owes %q", in.State.Status(), owed)
	}
}

// next is an instance after a further input.
func next(t *testing.T, d *Definition, in Instance, input Input) Instance {
	t.Helper()
	in, out, err := d.Advance(testPolicy, in, input)
	if err != nil || out.Ignored || out.Refused != "" {
		t.Fatalf("input %+v: %v, %+v", input, err, out)
	}
	return in
}

// TestEachItems: the items are those of the beginning, whatever becomes of the data, and a list that cannot be told apart is refused before
// anything is sent.
func TestEachItems(t *testing.T) {
	t.Parallel()
	d := saga(t, listed(2, 0, taken("reserve")), requested("charge"))
	in := after(t, d, `{}`, Input{Verb: &Verb{Kind: VerbEdit, Patch: json.RawMessage(`{"twice": true}`)}}, answer(line(1), OutcomeDone),
		Input{Verb: &Verb{Kind: VerbDone, Step: line(2), Patch: json.RawMessage(`{"by": "hand"}`)}}, answer(line(2), OutcomeUndone))
	if items := in.State.Steps["lines"].Items; len(items) != 2 || string(items[1].Data) != `{"by":"hand","n":2}` {
		t.Errorf("the items are %+v", items)
	}
	if strings.Contains(string(in.Data), "hand") {
		t.Errorf("what was said about an item is in the data: %s", in.Data)
	}
	parallel := saga(t, requested("charge"), &Step{Kind: Parallel, Name: "both", Branches: []*Step{listed(2, 0, taken("reserve")), requested("mail")}})
	in, out, err := parallel.Advance(testPolicy, after(t, parallel, `{"twice": true}`), answer("charge", OutcomeDone))
	if err != nil || in.State.Cause == nil || in.State.Cause.Reason != "invalid items" || len(out.Commands) != 1 || !out.Commands[0].Undo {
		t.Errorf("two items of one ID: cause %+v, commands %+v, %v; want only the undo of charge", in.State.Cause, out.Commands, err)
	}
	for _, id := range []string{"", "a[b", "a]b", "a\nb", strings.Repeat("x", MaxItemBytes+1)} {
		if why := (&transition{}).invalid([]Item{{ID: id}}); why == "" {
			t.Errorf("an item with the ID %q is accepted", id)
		}
	}
	if why := (&transition{advance: advance{p: Policy{MaxItems: 1}}}).invalid([]Item{{ID: "a"}, {ID: "b"}}); why == "" {
		t.Error("more items than MaxItems are accepted")
	}
}

// TestEachFails: a function of an Each that panics makes it stuck; a retry takes the items as they are.
func TestEachFails(t *testing.T) {
	t.Parallel()
	each, broken := listed(2, 0, taken("reserve")), true
	join := each.Join
	each.Join = func(data any, items []any) {
		if broken {
			panic("broken")
		}
		join(data, items)
	}
	d := saga(t, each, requested("charge"))
	in := after(t, d, `{}`, answer(line(1), OutcomeDone), answer(line(2), OutcomeDone))
	if st := in.State.Steps["lines"]; st.Status != StepStuck || len(st.Items) != 2 {
		t.Fatalf("the step is %+v, want it stuck with its items", st)
	}
	broken = false
	retried := next(t, d, in, says(VerbRetry, "lines"))
	if open := sends(retried); !slices.Equal(open, []string{"charge"}) {
		t.Errorf("after a retry, %q are open", open)
	}
	back := next(t, d, in, says(VerbCompensate, ""))
	if open := sends(back); !slices.Equal(open, []string{line(1), line(2)}) {
		t.Errorf("compensating, %q are open; want both undos", open)
	}
	// The type of the items has changed: they cannot be decoded, and nothing is lost.
	in = after(t, d, `{}`)
	d.Steps[0].Codec.Decode = func([]byte) (any, error) { return nil, errors.New("another type") }
	if _, _, err := d.Advance(testPolicy, in, answer(line(1), OutcomeDone)); !errors.Is(err, ErrInput) {
		t.Errorf("a reply to an item that cannot be read: %v, want %v", err, ErrInput)
	}
}

// TestEachMaxState: the items count for the size of the data.
func TestEachMaxState(t *testing.T) {
	t.Parallel()
	p := testPolicy
	p.MaxState = 40
	start := func(d *Definition) Instance {
		in, _, err := d.Advance(p, Instance{Run: "run", Data: json.RawMessage(`{}`), State: State{Token: "token"}}, Input{Start: &Start{}})
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	if in := start(saga(t, listed(6, 0, taken("reserve")))); in.State.Status() != Stuck {
		t.Errorf("items that are too large: %s, want %s", in.State.Status(), Stuck)
	}
	d := saga(t, listed(4, 0, taken("reserve")))
	in, _, err := d.Advance(p, start(d), answer(line(1), OutcomeDone))
	if err != nil || in.State.Steps[line(1)].Status != StepStuck {
		t.Errorf("an item that grows beyond it: %+v (%v), want it stuck", in.State.Steps[line(1)], err)
	}
	book := undoable(localStep("book"))
	d = saga(t, listed(2, 0, book))
	in = start(d)
	run, err := d.Local(&in, "lines[1]/book", p.MaxState)
	if err != nil || run.limit != p.MaxState-len(`{}`)-len(`{"n":2}`) || (*run.Data.(*map[string]any))["n"] != 1.0 {
		t.Errorf("a local step of item 1 gets %+v (%v)", run, err)
	}
}

// TestStepName: items and generations are no part of the name of a step.
func TestStepName(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{"pay": "pay", "lines[a/b#1]/reserve#2": "lines/reserve", "a[1]/b[2]/c": "a/b/c"} {
		if got := StepName(path); got != want {
			t.Errorf("the name of %s is %q, want %q", path, got, want)
		}
	}
}

// TestMermaidOfEach: the picture has the steps of the items, or the items of an instance, those first that it waits for.
func TestMermaidOfEach(t *testing.T) {
	t.Parallel()
	d := saga(t, listed(20, 2, taken("reserve")))
	if got := d.Mermaid(nil); !strings.Contains(got, `subgraph s1["lines · each"]`) || !strings.Contains(got, `s2["reserve"]`) {
		t.Errorf("the picture is\n%s", got)
	}
	in := after(t, d, `{}`, answer(line(1), OutcomeDone))
	got := d.Mermaid(&in.State)
	for _, want := range []string{`s2["2 · reserve<br>waiting"]`, `s4["1 · reserve<br>done"]`, `["and 8 more"]`} {
		if !strings.Contains(got, want) {
			t.Errorf("the picture is\n%s\nwant %s in it", got, want)
		}
	}
}
