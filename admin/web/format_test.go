package web

import (
	"testing"

	"github.com/postrider/postrider/store"
)

// TestTransitionSaysWhatItWasForOnce: the timer of an instance is nobody's step, and one entry of such a transition is its input again.
func TestTransitionSaysWhatItWasForOnce(t *testing.T) {
	t.Parallel()
	timer, due := store.SagaEntry{Name: "timer"}, store.SagaEntry{Name: "step.timed_out", Step: "charge", Text: "no answer"}
	for want, tr := range map[string]store.SagaTransition{
		"Timer|":                             {Input: "timer", Entries: []store.SagaEntry{timer}},
		"Timer:|charge timed out: no answer": {Input: "timer", Entries: []store.SagaEntry{timer, due}},
		"Timer of pay:|charge timed out: no answer":     {Input: "timer", Step: "pay", Entries: []store.SagaEntry{due}},
		"Answer of charge:|charge timed out: no answer": {Input: "reply", Step: "charge", Entries: []store.SagaEntry{due}},
	} {
		if e := transitionEvent(tr); e.Bold+"|"+e.Text != want {
			t.Errorf("%q, %q, want %s", e.Bold, e.Text, want)
		}
	}
}

// TestParkReasons: each reason has a text of its own; another one, of a newer release, is shown as it is.
func TestParkReasons(t *testing.T) {
	t.Parallel()
	for _, r := range []store.ParkReason{
		store.ParkRetry, store.ParkSnoozed, store.ParkHeld, store.ParkDelayed, store.ParkSlow, store.ParkUnhandled, store.ParkRedriven,
		store.ParkReturned, store.ParkAlone, store.ParkReplayed, store.ParkFailed, store.ParkDead,
	} {
		if text := parkReason(r); text == string(r) {
			t.Errorf("%s has no text", r)
		}
	}
	if text := parkReason("newer"); text != "newer" {
		t.Errorf("an unknown reason is shown as %q", text)
	}
}
