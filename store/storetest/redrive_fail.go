package storetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
)

// fail records that a step of a redrive has failed.
func (e *env) fail(r store.Redrive, cause string) store.Redrive {
	e.t.Helper()
	r, err := e.FailRedrive(e.ctx, r.ID, r.Failures, cause)
	e.must(err, "note a failed step")
	return r
}

func failedStepPutsOff(e *env) {
	w := e.worker("r", "a")
	want := w.deadLetter("rejected", e.messages("", 3)...)
	begun := e.startRedrive(everyOpen)
	long := strings.Repeat("history is no array; ", 300)
	r := e.fail(begun, long)
	if r.Failures != 1 || r.Cause == "" || len(r.Cause) > 4000 || !strings.HasPrefix(long, r.Cause) || r.NextAt.IsZero() {
		e.t.Errorf("after a failed step: %+v", r)
	}
	again := e.fail(begun, "that of another process")
	if again.Failures != 1 || again.Cause != r.Cause || !again.NextAt.Equal(r.NextAt) {
		e.t.Errorf("a step that failed in two processes: %+v, want it noted once as %+v", again, r)
	}
	shown, err := e.ShowRedrive(e.ctx, r.ID)
	e.must(err, "show")
	if shown.Failures != 1 || shown.Cause != r.Cause || shown.State != store.RedriveRunning {
		e.t.Errorf("shown after a failed step: %+v", shown)
	}
	put, wait := e.step(r.ID, 10)
	e.wantRedrive(put, store.RedriveRunning, 3, 0, 0, 0)
	if wait <= 0 || wait > time.Second {
		e.t.Errorf("a second step right after a failure is told to wait for %s, want up to a second", wait)
	}
	end := e.drive(r.ID)
	e.wantRedrive(end, store.RedriveFinished, 3, 3, 0, 0)
	if end.Failures != 0 || end.Cause != "" {
		e.t.Errorf("after a step that succeeded: %+v, want no failures", end)
	}
	e.wantSet("due", w.dueIDs(), want)
}

func redriveFails(e *env) {
	w := e.worker("r", "a")
	want := w.deadLetter("rejected", e.messages("", 3)...)
	r := e.startRedrive(everyOpen)
	for n := 1; n <= store.MaxRedriveFailures; n++ {
		if r.State != store.RedriveRunning {
			e.t.Fatalf("after %d failures: %+v", n-1, r)
		}
		r = e.fail(r, fmt.Sprint("failure ", n))
	}
	e.wantRedrive(r, store.RedriveFailed, 3, 0, 0, 0)
	if r.Cause != "failure 20" || r.EndedAt.IsZero() || !r.NextAt.IsZero() {
		e.t.Errorf("failed redrive: %+v", r)
	}
	if after := e.fail(r, "once more"); after.Failures != r.Failures || after.Cause != r.Cause {
		e.t.Errorf("a failure of a failed redrive was noted: %+v", after)
	}
	stepped, wait := e.step(r.ID, 10)
	e.wantRedrive(stepped, store.RedriveFailed, 3, 0, 0, 0)
	if _, err := e.CancelRedrive(e.ctx, r.ID, "olga"); wait != 0 || !errors.Is(err, deadletter.ErrRedriveEnded) {
		e.t.Errorf("cancelled after it has failed: %v; it wants to wait for %s", err, wait)
	}
	for listed, err := range e.ListRedrives(e.ctx, store.RedriveFailed) {
		if err != nil || listed.ID != r.ID || listed.Cause != r.Cause {
			e.t.Errorf("listed as failed: %+v, %v", listed, err)
		}
	}
	if _, err := e.FailRedrive(e.ctx, 4_711, 0, "x"); !errors.Is(err, store.ErrNoRedrive) {
		e.t.Errorf("failure of an unknown redrive: %v", err)
	}
	e.wantIDs("still open", e.deadIDs(everyOpen), want)
	e.wantRedrive(e.drive(e.startRedrive(everyOpen).ID), store.RedriveFinished, 3, 3, 0, 0)
}

// startedRedriveWakes: relays poll for redrives rarely, so a new redrive wakes them.
func startedRedriveWakes(e *env) {
	woken, end := e.Subscribe(nil)
	defer end()
	e.startRedrive(everyOpen)
	select {
	case <-woken:
	default:
		e.t.Error("nobody is woken up when a redrive starts")
	}
}

func endedRedrivesArePurged(e *env) {
	w := e.worker("r", "a")
	w.deadLetter("rejected", e.messages("", 1)...)
	finished := e.drive(e.startRedrive(everyOpen).ID)
	cancelled, failed, running := e.startRedrive(everyOpen), e.startRedrive(everyOpen), e.startRedrive(everyOpen)
	_, err := e.CancelRedrive(e.ctx, cancelled.ID, "olga")
	e.must(err, "cancel")
	for range store.MaxRedriveFailures {
		failed = e.fail(failed, "x")
	}
	last := e.startRedrive(everyOpen)
	_, err = e.CancelRedrive(e.ctx, last.ID, "olga")
	e.must(err, "cancel")
	kept := func() (ids []int64) {
		for r, err := range e.ListRedrives(e.ctx, "") {
			e.must(err, "list redrives")
			ids = append(ids, r.ID)
		}
		return ids
	}
	for _, keep := range []time.Duration{0, time.Hour} {
		e.maintain(store.Retention{For: time.Hour, Redrives: keep})
		if got := kept(); len(got) != 5 {
			e.t.Errorf("kept for %s: redrives %v, want all five", keep, got)
		}
	}
	e.maintain(store.Retention{For: time.Hour, Redrives: 1})
	if got := kept(); len(got) != 1 || got[0] != running.ID {
		e.t.Errorf("kept for a nanosecond: redrives %v, want %d, which is running", got, running.ID)
	}
	for _, gone := range []int64{finished.ID, cancelled.ID, failed.ID} {
		if _, err := e.ShowRedrive(e.ctx, gone); !errors.Is(err, store.ErrNoRedrive) {
			e.t.Errorf("redrive %d after it was purged: %v", gone, err)
		}
	}
	if deadLetters := e.deadLetters(store.DeadFilter{Redrive: finished.ID, State: store.DeadAny}); len(deadLetters) != 1 {
		e.t.Errorf("%d dead letters are left of a redrive that was purged, want 1", len(deadLetters))
	}
	if next := e.startRedrive(everyOpen); next.ID <= last.ID {
		e.t.Errorf("a redrive has ID %d, and one that was purged had %d", next.ID, last.ID)
	}
}
