package storetest

import (
	"errors"
	"time"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/pause"
	"github.com/postrider/postrider/store"
)

// pauses: the status shows a pause until it is resumed or over, a relay is paused once at a time, and others are not.
func pauses(e *env) {
	e.worker("to-a", "a")
	e.worker("to-b", "b")
	p := pause.New(e.database)
	if _, err := p.Pause(e.ctx, pause.Request{Relay: "to-c", By: "ann", Reason: "r"}); !errors.Is(err, store.ErrUnknownRelay) {
		e.t.Errorf("pause of an unknown relay: %v", err)
	}
	if _, err := p.Resume(e.ctx, "to-a"); !errors.Is(err, pause.ErrNotPaused) {
		e.t.Errorf("resume of a relay that is not paused: %v", err)
	}
	for range 2 { // a relay can be paused again
		got, err := p.Pause(e.ctx, pause.Request{Relay: "to-a", By: "ann\x00", Reason: "maintenance"})
		e.must(err, "pause")
		seen := e.pauseOf("to-a")
		if seen == nil || seen.By != "ann" || seen.Reason != "maintenance" || !seen.Until.IsZero() || !seen.At.Equal(got.At) || seen.At.IsZero() {
			e.t.Fatalf("the status has %+v, Pause returned %+v", seen, got)
		}
		if e.pauseOf("to-b") != nil {
			e.t.Error("another relay is paused")
		}
		if _, err := p.Pause(e.ctx, pause.Request{Relay: "to-a", By: "bob"}); !errors.Is(err, pause.ErrPaused) {
			e.t.Errorf("second pause: %v", err)
		}
		if ended, err := p.Resume(e.ctx, "to-a"); err != nil || ended.By != "ann" {
			e.t.Errorf("resume: %+v, %v", ended, err)
		}
		if seen := e.pauseOf("to-a"); seen != nil {
			e.t.Errorf("after the resumption: %+v", seen)
		}
	}
	if _, err := p.Pause(e.ctx, pause.Request{Relay: "to-a", For: -1}); !errors.Is(err, pause.ErrInvalid) {
		e.t.Errorf("a pause for a negative time: %v", err)
	}
	_, err := p.Pause(e.ctx, pause.Request{Relay: "to-b", By: "ann", For: 10 * time.Millisecond})
	e.must(err, "pause for a while")
	e.until("the end of the pause", func() bool { return e.pauseOf("to-b") == nil })
	got, err := p.Pause(e.ctx, pause.Request{Relay: "to-b", By: "ann", For: time.Hour})
	e.must(err, "pause for an hour")
	if seen := e.pauseOf("to-b"); seen == nil || !seen.Until.Equal(got.Until) || got.Until.Sub(got.At).Round(time.Minute) != time.Hour {
		e.t.Errorf("a pause of an hour: %+v, Pause returned %+v", seen, got)
	}
}

// pauseEndsWithItsRelay: nobody would know of the old pause when a relay of that name begins again.
func pauseEndsWithItsRelay(e *env) {
	w := e.worker("to-a", "a")
	_, err := pause.New(e.database).Pause(e.ctx, pause.Request{Relay: "to-a", By: "ann", Reason: "to be removed"})
	e.must(err, "pause")
	w.leave()
	_, err = held.New(e).RemoveRelay(e.ctx, "to-a", "ann", "gone", false)
	e.must(err, "remove the relay")
	e.worker("to-a", "a")
	if seen := e.pauseOf("to-a"); seen != nil {
		e.t.Errorf("a successor is paused: %+v", seen)
	}
}

// redriveRateEndsWithItsRelay: a redrive of all relays does not keep to the limit of one that was removed.
func redriveRateEndsWithItsRelay(e *env) {
	e.worker("gone", "a").leave()
	e.worker("r", "a").deadLetter("rejected", e.message("order/1"), e.message("order/2"))
	dead := deadletter.New(e)
	limit := func() { e.must(dead.LimitRate(e.ctx, "gone", 0.001), "limit the rate") }
	limit()
	_, err := held.New(e).RemoveRelay(e.ctx, "gone", "ann", "gone", false)
	e.must(err, "remove the relay")
	started, err := dead.StartRedrive(e.ctx, deadletter.Plan{By: "ann"})
	e.must(err, "start a redrive")
	if after, wait, err := dead.StepRedrive(e.ctx, started.ID, 0); err != nil || after.Done != 2 {
		e.t.Errorf("%d of 2 dead letters were sent, the next after %s: %v", after.Done, wait, err)
	}
	limit() // a successor has one again
}

// pauseOf returns the pause that the status shows for a relay.
func (e *env) pauseOf(name string) *store.Pause {
	e.t.Helper()
	s, err := e.Status(e.ctx)
	e.must(err, "status")
	for _, r := range s.Relays {
		if r.Name == name {
			return r.Paused
		}
	}
	e.t.Fatalf("the status has no relay %s", name)
	return nil
}
