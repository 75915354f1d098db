package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/doctor"
	"github.com/postrider/postrider/erasure"
	"github.com/postrider/postrider/store/memory"
)

// TestRun: a check that hangs, even if it ignores its context, could not check, like one that fails or is not reached in time.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		released := make(chan struct{})
		defer close(released)
		hangs := func(context.Context) ([]doctor.Finding, error) {
			<-released
			return nil, nil
		}
		finding := doctor.Finding{Level: doctor.Warning, Message: "m", Fix: []doctor.Fix{{Command: "postrider status"}, {Command: "select 1;"}}}
		checks := []doctor.Check{
			{Name: "a.passes", Run: func(context.Context) ([]doctor.Finding, error) { return nil, nil }},
			{Name: "a.finds", Run: func(context.Context) ([]doctor.Finding, error) { return []doctor.Finding{finding}, nil }},
			{Name: "a.fails", Run: func(context.Context) ([]doctor.Finding, error) { return nil, errors.New("no") }},
			{Name: "a.misses", Run: func(context.Context) ([]doctor.Finding, error) {
				return nil, &doctor.MissingError{Reason: "r", Fix: doctor.Fix{Command: "grant x;"}}
			}},
			{Name: "a.hangs", Run: hangs}, {Name: "b.hangs", Run: hangs}, {Name: "a.late", Run: hangs},
		}
		began := time.Now()
		r := doctor.Run(t.Context(), checks, doctor.Options{PerCheck: time.Second, Total: 1500 * time.Millisecond, Command: func(line string) string { return line + " --store x" }})
		if took := time.Since(began); took != 1500*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		want := []doctor.Outcome{doctor.Passed, doctor.Warned, doctor.CouldNotCheck, doctor.CouldNotCheck, doctor.CouldNotCheck, doctor.CouldNotCheck, doctor.CouldNotCheck}
		for i, result := range r.Results {
			if result.Outcome != want[i] {
				t.Errorf("%+v, want %s", result, want[i])
			}
		}
		if reason := r.Results[6].Reason; reason != "not reached within 1.5s" {
			t.Errorf("the last one: %s", reason)
		}
		if f := r.Findings()[0]; f.Check != "a.finds" || f.Fix[0].Command != "postrider status --store x" || f.Fix[1].Command != "select 1;" {
			t.Errorf("%+v", f)
		}
		if got := r.Summary(); got != "7 checks: 0 faults, 1 warning, 5 could not check, 1 passed" {
			t.Error(got)
		}
		if !r.Failed() || !r.Results[3].Missing {
			t.Error("a check has failed, and one misses a right")
		}
	})
}

// TestSilence: a check for which silence means something finds it, whoever notices first that time is up; not if the whole run ends,
// for then it had less time than a check has.
func TestSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		released := make(chan struct{})
		defer close(released)
		runs := map[string]func(context.Context) ([]doctor.Finding, error){
			"the check": func(context.Context) ([]doctor.Finding, error) {
				<-released
				return nil, nil
			},
			"its client, first": func(context.Context) ([]doctor.Finding, error) {
				return nil, fmt.Errorf("connect: %w", context.DeadlineExceeded)
			},
			"its client, later": func(ctx context.Context) ([]doctor.Finding, error) {
				<-ctx.Done()
				return nil, errors.New("the connection is closed")
			},
		}
		silence := func() []doctor.Finding { return []doctor.Finding{{Level: doctor.Fault, Message: "it does not answer"}} }
		for who, run := range runs {
			check := doctor.Check{Name: "a.silent", Run: run, Silence: silence}
			if r := doctor.Run(t.Context(), []doctor.Check{check}, doctor.Options{}).Results[0]; r.Outcome != doctor.Faulty || r.Findings[0].Check != "a.silent" {
				t.Errorf("%s notices: %+v", who, r)
			}
			if who == "its client, first" {
				continue
			}
			r := doctor.Run(t.Context(), []doctor.Check{check}, doctor.Options{PerCheck: time.Minute, Total: time.Second}).Results[0]
			if r.Outcome != doctor.CouldNotCheck {
				t.Errorf("%s notices, when the run ends: %+v", who, r)
			}
		}
	})
}

// TestClock: clocks that differ by more than a second.
func TestClock(t *testing.T) {
	t.Parallel()
	for off, want := range map[time.Duration]doctor.Outcome{
		0: doctor.Passed, 900 * time.Millisecond: doctor.Passed, 5 * time.Second: doctor.Warned, -time.Minute: doctor.Faulty,
	} {
		synctest.Test(t, func(t *testing.T) {
			check := doctor.Clock(func(context.Context) (time.Time, error) { return time.Now().Add(off), nil })
			r := doctor.Run(t.Context(), []doctor.Check{check}, doctor.Options{}).Results[0]
			if r.Outcome != want {
				t.Errorf("%s: %+v", off, r)
			}
			if off < 0 && !strings.Contains(r.Findings[0].Message, " ahead of ") {
				t.Errorf("%s", r.Findings[0].Message)
			}
		})
	}
}

// TestMemory: the store for tests has no database; what has no meaning is left out.
func TestMemory(t *testing.T) {
	t.Parallel()
	r := doctor.Run(t.Context(), doctor.Checks(memory.New(memory.Config{})), doctor.Options{Total: time.Hour})
	if r.Count(doctor.Passed) != len(r.Results) || len(r.Results) != 12 {
		t.Errorf("%+v", r)
	}
}

// TestInterruptedErasure: the doctor says how to erase the rest.
func TestInterruptedErasure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun, cut := false, true
		s := memory.New(memory.Config{Fault: func(op string, done bool) error {
			if op == "Erase" && begun && cut {
				return errors.New("the process has died")
			}
			begun = begun || op == "Erase" && done
			return nil
		}})
		if _, err := erasure.New(s).Erase(t.Context(), erasure.Plan{Key: "customer/42", By: "ann"}, nil); err == nil {
			t.Fatal("the erasure was not interrupted")
		}
		found := func() []doctor.Finding {
			for _, r := range doctor.Run(t.Context(), doctor.Checks(s), doctor.Options{}).Results {
				if r.Check == "erasure" {
					return r.Findings
				}
			}
			t.Fatal("there is no such check")
			return nil
		}
		if f := found(); len(f) > 0 {
			t.Errorf("found at once: %+v", f)
		}
		time.Sleep(6 * time.Minute)
		f := found()
		if len(f) != 1 || f[0].Fix[0].Command != "postrider erase resume "+f[0].Target {
			t.Fatalf("found %+v", f)
		}
		cut = false
		if _, err := erasure.New(s).Resume(t.Context(), f[0].Target, "eva", nil); err != nil {
			t.Fatal(err)
		}
		if f := found(); len(f) > 0 {
			t.Errorf("found after its end: %+v", f)
		}
	})
}
