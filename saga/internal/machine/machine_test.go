package machine

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/store"
)

// TestInputsThatChangeNothing: what does not concern the instance is ignored, recorded as late, or an error.
func TestInputsThatChangeNothing(t *testing.T) {
	t.Parallel()
	d := definition(t)
	running := after(t, d, `{}`)
	if _, out, err := d.Advance(testPolicy, running, Input{Timer: &Fired{ID: 7}}); err != nil || !out.Ignored {
		t.Errorf("a timer that was replaced: %+v, %v; want it ignored", out, err)
	}
	if _, _, err := d.Advance(testPolicy, running, Input{Reply: &Reply{SentAs: "reserve", Token: "guessed", Outcome: OutcomeDone}}); !errors.Is(err, ErrInput) {
		t.Errorf("a reply without the token: %v, want %v", err, ErrInput)
	}
	if _, _, err := d.Advance(testPolicy, running, Input{Signal: &Signal{ID: "s", Type: "unknown"}}); !errors.Is(err, ErrInput) {
		t.Errorf("a signal that no step awaits: %v, want %v", err, ErrInput)
	}
	if _, _, err := d.Advance(testPolicy, running, Input{}); !errors.Is(err, ErrInput) {
		t.Errorf("no input: %v, want %v", err, ErrInput)
	}
	for _, step := range []string{"ship", "reserve#2"} {
		_, out, err := d.Advance(testPolicy, running, answer(step, OutcomeDone))
		if err != nil || len(out.Events) != 1 || out.Events[0].What != "late" || len(out.Commands) > 0 {
			t.Errorf("a reply to %s: %+v, %v; want it late", step, out, err)
		}
	}
}

// TestOneTimer: an instance has one timer outstanding; another is set only for an earlier time.
func TestOneTimer(t *testing.T) {
	t.Parallel()
	d := definition(t)
	d.Steps[0].Timeout, d.Steps[1].Timeout = time.Hour, time.Minute
	in, out, err := d.Advance(testPolicy, Instance{Run: "run", Data: []byte("{}"), State: State{Token: "token"}}, Input{Start: &Start{}})
	if err != nil || out.Timer == nil || *out.Timer != (TimerSet{ID: 1, After: time.Hour}) {
		t.Fatalf("timer %+v (%v), want the first, after an hour", out.Timer, err)
	}
	reply := answer("reserve", OutcomeDone)
	reply.Age = 10 * time.Second
	in, out, err = d.Advance(testPolicy, in, reply)
	if err != nil || out.Timer == nil || *out.Timer != (TimerSet{ID: 2, After: time.Minute}) {
		t.Fatalf("timer %+v (%v), want another, after a minute", out.Timer, err)
	}
	late := answer("reserve", OutcomeDone)
	late.Age = 20 * time.Second
	if _, out, err = d.Advance(testPolicy, in, late); err != nil || out.Timer != nil {
		t.Errorf("timer %+v (%v), want none", out.Timer, err)
	}
}

// TestDecide: what a participant does, by its record.
func TestDecide(t *testing.T) {
	t.Parallel()
	type situation struct {
		record                      store.SagaStepState
		undo, undoes, seen, expired bool
	}
	for s, want := range map[situation]Action{
		{record: store.SagaStepNone}:                              RunDo,
		{record: store.SagaStepNone, expired: true}:               NoRecord,
		{record: store.SagaStepDone}:                              Repeat,
		{record: store.SagaStepDone, expired: true}:               Repeat,
		{record: store.SagaStepRefused}:                           Repeat,
		{record: store.SagaStepUndone}:                            Refuse,
		{record: store.SagaStepBlocked}:                           Refuse,
		{record: store.SagaStepNone, undo: true, undoes: true}:    Block,
		{record: store.SagaStepNone, undo: true}:                  Block,
		{record: store.SagaStepNone, undo: true, seen: true}:      BlockDone,
		{undo: true, seen: true, expired: true}:                   NoRecord,
		{record: store.SagaStepBlocked, undo: true, seen: true}:   NoRecord,
		{record: store.SagaStepRefused, undo: true, seen: true}:   NoRecord,
		{record: store.SagaStepNone, undo: true, expired: true}:   NoRecord,
		{record: store.SagaStepDone, undo: true, undoes: true}:    RunUndo,
		{record: store.SagaStepDone, undo: true}:                  Cannot,
		{record: store.SagaStepRefused, undo: true, undoes: true}: Undone,
		{record: store.SagaStepUndone, undo: true, undoes: true}:  Undone,
		{record: store.SagaStepBlocked, undo: true, undoes: true}: Undone,
		{record: store.SagaStepUndone, undo: true, seen: true}:    Undone,
		{record: store.SagaStepCalling}:                           RunDo,
		{record: store.SagaStepCalling, expired: true}:            RunDo,
		{record: store.SagaStepCalling, undo: true, undoes: true}: Settle,
		{record: store.SagaStepCalling, undo: true, seen: true}:   Settle,
	} {
		if got := Decide(s.record, s.undo, s.undoes, s.seen, s.expired); got != want {
			t.Errorf("%+v: %s, want %s", s, got, want)
		}
	}
}

// TestMergePatch has the examples of RFC 7396, and a number with more digits than a float has.
func TestMergePatch(t *testing.T) {
	t.Parallel()
	for _, tt := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{"n":12345678901234567890.5}`, `{}`, `{"n":12345678901234567890.5}`},
	} {
		if got, err := MergePatch([]byte(tt[0]), []byte(tt[1])); err != nil || string(got) != tt[2] {
			t.Errorf("merge %s into %s: %s (%v), want %s", tt[1], tt[0], got, err, tt[2])
		}
	}
	if _, err := MergePatch([]byte(`{}`), []byte(`{`)); err == nil {
		t.Error("a patch that is no JSON was accepted")
	}
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	for _, tt := range [][3]string{
		{``, `{"a":1}`, `[{"path":null,"after":{"a":1}}]`},
		{`{"a":1}`, `{"a":1}`, `null`},
		{`{"a":1,"b":{"c":2}}`, `{"a":1,"b":{"c":3}}`, `[{"path":["b","c"],"before":2,"after":3}]`},
		{`{"a":1}`, `{"b":null}`, `[{"path":["a"],"before":1},{"path":["b"],"after":null}]`},
		{`{"a":[1,2]}`, `{"a":[1]}`, `[{"path":["a"],"before":[1,2],"after":[1]}]`},
	} {
		found, err := Differences([]byte(tt[0]), []byte(tt[1]))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(found); err != nil || string(got) != tt[2] {
			t.Errorf("from %s to %s: %s (%v), want %s", tt[0], tt[1], got, err, tt[2])
		}
	}
}

// TestMermaidOfAnInstance: the picture shows where an instance is.
func TestMermaidOfAnInstance(t *testing.T) {
	t.Parallel()
	d := definition(t)
	in := after(t, d, `{}`, answer("reserve", OutcomeDone), answer("charge", OutcomeRefused))
	for _, want := range []string{`s1["reserve<br>undoing"]:::waiting`, `s2["charge<br>refused"]:::refused`, "classDef waiting"} {
		if got := d.Mermaid(&in.State); !strings.Contains(got, want) {
			t.Errorf("the picture is\n%s\nwant %s in it", got, want)
		}
	}
}

// TestBackoff: between half and the whole of the exponential wait, and the same for the same attempt.
func TestBackoff(t *testing.T) {
	t.Parallel()
	tr := &advance{p: Policy{BackoffBase: time.Second, BackoffMax: time.Minute}, in: &Instance{Run: "run"}}
	for attempts, want := range map[int]time.Duration{1: time.Second, 3: 4 * time.Second, 7: time.Minute, 100: time.Minute} {
		got := tr.backoff("step", attempts)
		if got < want/2 || got > want || got != tr.backoff("step", attempts) {
			t.Errorf("after %d attempts: %s, want between %s and %s", attempts, got, want/2, want)
		}
	}
}
