package machine

import (
	"testing"
	"time"
)

// TestClockOfTheDatabaseIsSetBack: the database can say that an instance starts in the future, e.g. after a failover. Its timers are set all the same.
func TestClockOfTheDatabaseIsSetBack(t *testing.T) {
	t.Parallel()
	for _, age := range []time.Duration{-testPolicy.StepTimeout, -time.Minute} {
		d := saga(t, requested("reserve"), requested("charge"))
		reply := answer("reserve", OutcomeDone)
		reply.Age = age
		in := next(t, d, after(t, d, `{}`), reply)
		if due := in.State.Steps["charge"].Due; due != testPolicy.StepTimeout {
			t.Errorf("at %s: charge is due at %s, want %s", age, due, testPolicy.StepTimeout)
		}
		if in = next(t, d, in, fires(in)); in.State.Status() != Compensating {
			t.Errorf("at %s: after its timer the instance is %s", age, in.State.Status())
		}
		r := begin(t, shop(t)).sees("created")
		r.age = age
		if r.says(VerbCancel, "").is(Compensating); r.in.State.next() != testPolicy.UndoTimeout {
			t.Errorf("at %s: the undo of an event is due at %s, want %s", age, r.in.State.next(), testPolicy.UndoTimeout)
		}
	}
}

// TestTimerWhileTheClockIsSetBack: a timer fires once, when its step is due by the clock as it is, and not each time its timeout passes before.
func TestTimerWhileTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	const age = -time.Hour
	want := TimerSet{ID: 2, After: time.Hour + testPolicy.StepTimeout}
	d := saga(t, requested("reserve"))
	timer := fires(after(t, d, `{}`))
	timer.Age = age
	_, out, err := d.Advance(testPolicy, after(t, d, `{}`), timer)
	if err != nil || out.Timer == nil || *out.Timer != want {
		t.Errorf("the timer of a definition is %+v (%v), want %+v", out.Timer, err, want)
	}
	r := begin(t, shop(t))
	r.age = age
	if r.sees("created"); r.out.Timer == nil || r.out.Timer.After != time.Hour+r.in.State.next() {
		t.Errorf("the timer of a contract is %+v, want one after an hour more than %s", r.out.Timer, r.in.State.next())
	}
}

// TestPauseWhileTheClockIsSetBack: times do not move back by a pause.
func TestPauseWhileTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	d := saga(t, requested("reserve"))
	pause, resume := says(VerbPause, ""), says(VerbResume, "")
	pause.Age, resume.Age = time.Minute, time.Millisecond
	in := next(t, d, after(t, d, `{}`, pause), resume)
	if got := in.State.Steps["reserve"].Due; got != testPolicy.StepTimeout {
		t.Errorf("the step is due at %s, want %s", got, testPolicy.StepTimeout)
	}
}
