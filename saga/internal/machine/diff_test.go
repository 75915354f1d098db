package machine

import (
	"strings"
	"testing"
)

// TestClassify: each class, for an instance that has done its first step.
func TestClassify(t *testing.T) {
	t.Parallel()
	steps := func() []*Step { return []*Step{requested("reserve"), requested("charge")} }
	old := saga(t, steps()...)
	in := after(t, old, `{}`, answer("reserve", OutcomeDone))
	version := func(n int, steps ...*Step) Rules {
		d := saga(t, steps...)
		d.Version = n
		return d
	}
	patient := steps()
	patient[1].Timeout = MaxDuration
	noUndo := steps()
	noUndo[0].NoUndo = true
	renamed := steps()
	renamed[0].Message = "hold"
	more := append(steps(), requested("mail"))
	for name, tt := range map[string]struct {
		build []Rules
		want  Class
	}{
		"the same":                             {[]Rules{version(1, steps()...)}, ClassSame},
		"another timeout":                      {[]Rules{version(1, patient...)}, ClassPolicy},
		"a newer version next to it":           {[]Rules{version(2, more...), version(1, steps()...)}, ClassPinned},
		"only a newer version":                 {[]Rules{version(2, more...)}, ClassStops},
		"another structure":                    {[]Rules{version(1, more...)}, ClassStops},
		"no version":                           {nil, ClassStops},
		"a newer version without the undo":     {[]Rules{version(2, noUndo...)}, ClassUnsafe},
		"a newer version with another command": {[]Rules{version(2, renamed...)}, ClassUnsafe},
		"a newer version without the step":     {[]Rules{version(2, requested("charge"))}, ClassUnsafe},
	} {
		if got, why := Classify(old, &in.State, tt.build); got != tt.want || (why == "") != (tt.want == ClassSame || tt.want == ClassPolicy || tt.want == ClassPinned) {
			t.Errorf("%s: %s (%s), want %s", name, got, why, tt.want)
		}
	}
}

// TestClassifyWithoutUndo: what the instance's own version cannot undo, no newer one need undo.
func TestClassifyWithoutUndo(t *testing.T) {
	t.Parallel()
	steps := func() []*Step {
		ship, mail := requested("ship"), requested("mail")
		ship.Pivot, ship.NoUndo, mail.NoUndo = true, true, true
		return []*Step{requested("reserve"), ship, mail}
	}
	old, newer := saga(t, steps()...), saga(t, append(steps(), requested("thank"))...)
	newer.Version = 2
	for waits, answers := range map[string][]Input{
		"ship": {answer("reserve", OutcomeDone)}, "mail": {answer("reserve", OutcomeDone), answer("ship", OutcomeDone)},
	} {
		in := after(t, old, `{}`, answers...)
		if class, why := Classify(old, &in.State, []Rules{newer}); class != ClassStops || !strings.Contains(why, "can migrate") {
			t.Errorf("an instance that waits for %s: %s (%s), want %s, and that it can be migrated", waits, class, why, ClassStops)
		}
	}
}
