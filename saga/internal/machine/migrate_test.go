package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// migrating is the verb that leads from a definition to a version.
func migrating(from *Definition, to int) Input {
	return Input{Verb: &Verb{Kind: VerbMigrate, From: from, To: to, Actor: "ann", Reason: "test"}}
}

// second is a second version with these steps.
func second(t *testing.T, steps ...*Step) *Definition {
	t.Helper()
	d := saga(t, steps...)
	d.Version = 2
	return d
}

func ways(card ...*Step) *Step {
	return &Step{Kind: Choose, Name: "pay", Cases: []Case{{Name: "card", If: func(any) bool { return true }, Steps: card}, {Name: "other"}}}
}

// TestMigrate: an instance continues with a version in which everything that it has reached is the same, and with no other.
func TestMigrate(t *testing.T) {
	t.Parallel()
	first := saga(t, requested("reserve"), ways(requested("charge")), requested("mail"))
	charging := after(t, first, `{}`, answer("reserve", OutcomeDone))
	mailing := after(t, first, `{}`, answer("reserve", OutcomeDone), answer("pay/card/charge", OutcomeDone))
	noUndo := requested("reserve")
	noUndo.NoUndo = true
	for name, tt := range map[string]struct {
		in   Instance
		to   *Definition
		want string // "" if it is not refused
	}{
		"a step after it":                {charging, second(t, requested("reserve"), ways(requested("charge")), requested("mail"), requested("note")), ""},
		"another step after it":          {charging, second(t, requested("reserve"), ways(requested("charge")), requested("note")), ""},
		"nothing after it":               {charging, second(t, requested("reserve"), ways(requested("charge"))), ""},
		"a step in its case":             {charging, second(t, requested("reserve"), ways(requested("charge"), requested("note")), requested("mail")), ""},
		"a step in the case before it":   {mailing, second(t, requested("reserve"), ways(requested("charge"), requested("note")), requested("mail")), "step pay is another"},
		"a step before it":               {charging, second(t, requested("check"), requested("reserve"), ways(requested("charge")), requested("mail")), "step reserve in its place"},
		"a step between":                 {charging, second(t, requested("reserve"), requested("check"), ways(requested("charge"))), "step pay in its place"},
		"without a step that was done":   {charging, second(t, ways(requested("charge"))), "step reserve in its place"},
		"without the step it waits for":  {mailing, second(t, requested("reserve"), ways(requested("charge"))), "step mail in its place"},
		"without its case":               {charging, second(t, requested("reserve"), &Step{Kind: Choose, Name: "pay", Cases: []Case{{Name: "other"}}}), "case card"},
		"without the undo of a step":     {charging, second(t, noUndo, ways(requested("charge"))), "step reserve is another"},
		"a step that is the pivot there": {charging, second(t, pivotal(requested("reserve")), ways(requested("charge"))), "step reserve is another"},
		"the same version":               {charging, saga(t, requested("reserve"), ways(requested("charge"))), "is of version 1"},
	} {
		in, out, err := tt.to.Advance(testPolicy, tt.in, migrating(first, tt.to.Version))
		if err != nil || (out.Refused == "") != (tt.want == "") || !strings.Contains(out.Refused, tt.want) {
			t.Errorf("%s: refused %q (%v), want %q", name, out.Refused, err, tt.want)
		}
		if in.Rev != tt.in.Rev+1 || len(out.Events) == 0 {
			t.Errorf("%s: revision %d after %d, and the events %+v", name, in.Rev, tt.in.Rev, out.Events)
		}
	}
	charged := next(t, second(t, requested("reserve"), ways(requested("charge")), requested("note")), charging, migrating(first, 2))
	charged, out, err := second(t, requested("reserve"), ways(requested("charge")), requested("note")).Advance(testPolicy, charged, answer("pay/card/charge", OutcomeDone))
	if err != nil || len(out.Commands) != 1 || out.Commands[0].Path != "note" {
		t.Errorf("afterwards it sends %+v (%v), want the command of note", out.Commands, err)
	}
	if in, out, err := second(t, requested("reserve")).Advance(testPolicy, charged, migrating(nil, 2)); err != nil || out.Refused == "" || in.State.Ended != "" {
		t.Errorf("from a version that nobody has reported: %q, %v", out.Refused, err)
	}
	if _, out, err := first.Advance(testPolicy, charged, migrating(first, 9)); err != nil || out.Refused != "no running process has version 9 of saga orders" {
		t.Errorf("to a version that nobody has: %q, %v", out.Refused, err)
	}
	_, out, err = second(t, requested("reserve")).Advance(testPolicy, after(t, first, `{}`, says(VerbAbandon, "")), migrating(first, 2))
	if err != nil || out.Refused != "the instance is abandoned" {
		t.Errorf("an instance that has ended: %q, %v", out.Refused, err)
	}
}

// TestRefusedMigrationPastPivot: an instance whose pivot is done stays past it.
func TestRefusedMigrationPastPivot(t *testing.T) {
	t.Parallel()
	first := saga(t, pivotal(requested("charge")), requested("mail"))
	in := after(t, first, `{}`, answer("charge", OutcomeDone))
	if _, out, err := second(t, requested("check")).Advance(testPolicy, in, migrating(first, 2)); err != nil || out.Refused == "" || !out.Passed {
		t.Errorf("refused %q (%v), past the pivot: %t", out.Refused, err, out.Passed)
	}
}

// TestMigrateData: the data go through Upgrade; if that fails, or if they cannot be read, they stay as they are.
func TestMigrateData(t *testing.T) {
	t.Parallel()
	first := saga(t, requested("reserve"))
	in := after(t, first, `{"n":1}`)
	to := second(t, requested("reserve"), requested("charge"))
	to.Upgrade = func(from int, data json.RawMessage) (json.RawMessage, error) {
		return json.RawMessage(fmt.Sprintf(`{"from":%d,"was":%s}`, from, data)), nil
	}
	if got := next(t, to, in, migrating(first, 2)); string(got.Data) != `{"from":1,"was":{"n":1}}` {
		t.Errorf("the data are %s", got.Data)
	}
	for name, upgrade := range map[string]Upgrade{
		"fails":         func(int, json.RawMessage) (json.RawMessage, error) { return nil, errors.New("no") },
		"makes rubbish": func(int, json.RawMessage) (json.RawMessage, error) { return json.RawMessage(`{`), nil },
		"makes too much": func(int, json.RawMessage) (json.RawMessage, error) {
			return json.Marshal(map[string]string{"text": strings.Repeat("x", 200)})
		},
		"makes nothing": func(int, json.RawMessage) (json.RawMessage, error) { return nil, nil },
	} {
		to.Upgrade = upgrade
		small := testPolicy
		small.MaxState = 200
		got, out, err := to.Advance(small, in, migrating(first, 2))
		if err != nil || !strings.Contains(out.Refused, "cannot take the data") || string(got.Data) != `{"n":1}` {
			t.Errorf("an Upgrade that %s: refused %q (%v), and the data are %s", name, out.Refused, err, got.Data)
		}
	}
}
