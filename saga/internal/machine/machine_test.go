package machine

import (
	"encoding/json"
	"errors"
	"reflect"
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
		{`{"a":"x<y"}`, `{"a":"x\u003cy"}`, `null`},
		{`{"a":"\u0041"}`, `{"a":"A"}`, `null`},
		{`{"a":"é"}`, `{"a":"\u00e9"}`, `null`},
		{`{"a":"x"}`, `{"a":"x y"}`, `[{"path":["a"],"before":"x","after":"x y"}]`},
		{`{"a":1.0}`, `{"a":1.00}`, `[{"path":["a"],"before":1.0,"after":1.00}]`},
		{`-1 `, `-1`, `null`},
		{`""`, `"\""`, `[{"path":null,"before":"","after":"\""}]`},
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

// TestPlainTextIsCanonical: what isPlain takes is what decoding and encoding makes of it.
func TestPlainTextIsCanonical(t *testing.T) {
	t.Parallel()
	for _, inner := range []string{
		"", "a", " a ~", "a\"b", `a\"b`, `\u0041`, "a<b", "a>b", "a&b", "a\x01b", "a\x7fb", "é", "\xff", "\u2028", `\`,
		"0", "-0", "1.50", "1e9", "1E+9", "01", "-", "1 ", "1\n", "1,2", "true", "null", "{}",
	} {
		for _, text := range []string{inner, `"` + inner + `"`, `"` + inner, inner + `"`} {
			if text == "" || !isPlain([]byte(text)) {
				continue
			}
			var v any
			err := read([]byte(text), &v)
			encoded, _ := json.Marshal(v)
			if err != nil || string(encoded) != text {
				t.Errorf("%q counts as plain, and is encoded as %q (%v)", text, encoded, err)
			}
		}
	}
	for _, text := range []string{`"an order"`, `17`, `-2.5`} {
		if !isPlain([]byte(text)) {
			t.Errorf("%s does not count as plain", text)
		}
	}
}

// TestPlainFields: what is read without a decoder is what a decoder reads.
func TestPlainFields(t *testing.T) {
	t.Parallel()
	plain := 0
	for _, text := range []string{
		`{}`, ` { } `, `{"a":1}`, `{"a":"x","b":"","":null}`, `{ "a" : [ 1 , {"b":"]}\""} ] , "c" : { "d" : {} } }`, "{\n\t\"a\": true\r\n}\n",
		`{"a":"\\","b":"\\\""}`, `{"a":"{","b":"}"}`, `{"a":1,"a":2}`, `{"a":",","b":"é"}`, `{"é":1}`, `{"\u0041":1}`, `{"a\"b":1}`, `{"a":-1.5e9,"b":{"c":[[]]}}`,
	} {
		var want map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		got, err := fields([]byte(text))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s, %v", text, got, err)
		}
		if plainFields([]byte(text)) != nil {
			plain++
		}
	}
	if plain != 11 {
		t.Errorf("%d of the texts are read without a decoder", plain)
	}
	for _, text := range []string{``, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,}`, `{"a":,"b":1}`, `{a:1}`, `{"a" 1}`, `["a"]`, `{"a":"}`, `{"a":1}}`, `{} {}`} {
		if got, err := fields([]byte(text)); err == nil {
			t.Errorf("%s: %s, and no error", text, got)
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
