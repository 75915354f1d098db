package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider"
)

var attemptTests = []test{
	{name: "AreReadAsTheyWereRecorded", run: attemptsRead},
	{name: "AreRecordedOnce", run: attemptsOnce},
	{name: "AreBoundedPerMessage", run: attemptsBounded},
	{name: "AreDroppedWhenTheirTimeIsOver", run: attemptsDropped, statements: true},
}

// attemptLog returns the store's postrider.AttemptLog, however the store is wrapped.
func (e *env) attemptLog() postrider.AttemptLog {
	e.t.Helper()
	log, ok := e.database.(interface {
		attemptLog() (postrider.AttemptLog, bool)
	}).attemptLog()
	if !ok {
		e.t.Fatal("the store is no postrider.AttemptLog")
	}
	return log
}

func (d *erased[Tx]) attemptLog() (postrider.AttemptLog, bool) {
	log, ok := any(d.Store).(postrider.AttemptLog)
	return log, ok
}

// attempt returns the nth attempt at a message.
func attempt(id, relay string, n int) postrider.DeliveryAttempt {
	return postrider.DeliveryAttempt{
		MessageID: id, Relay: relay, Attempt: n, At: time.Date(2026, 2, 3, 4, 5, 6, n*1000, time.UTC), Took: 1500 * time.Microsecond,
		Outcome: "retried", Status: 503, Answer: []byte("busy\x00\xff\\x41'\""), Error: `webhook answered "503" 'busy' {\}, …`,
		RequestSHA256: bytes.Repeat([]byte{0, 0xfe}, 16),
	}
}

func (e *env) record(keep time.Duration, attempts ...postrider.DeliveryAttempt) {
	e.t.Helper()
	e.must(e.attemptLog().RecordAttempts(e.ctx, attempts, keep), "record attempts")
}

// checkAttempts compares the stored attempts of a message, oldest first.
func (e *env) checkAttempts(id string, want ...postrider.DeliveryAttempt) {
	e.t.Helper()
	got, err := e.attemptLog().Attempts(e.ctx, id)
	e.must(err, "read attempts")
	show := func(all []postrider.DeliveryAttempt) string {
		var out []string
		for _, a := range all {
			out = append(out, fmt.Sprintf("%s %s %d %s %s %s %d %q %q %x", a.MessageID, a.Relay, a.Attempt, a.At.Format(time.RFC3339Nano), a.Took,
				a.Outcome, a.Status, a.Answer, a.Error, a.RequestSHA256))
		}
		return fmt.Sprintf("%d attempts %q", len(all), out)
	}
	if show(got) != show(want) {
		e.t.Errorf("message %s has\n%s\nwant\n%s", id, show(got), show(want))
	}
}

func attemptsRead(e *env) {
	e.record(time.Hour)
	e.checkAttempts("a")
	first, second, other := attempt("a", "r", 1), attempt("a", "r", 2), attempt("a", "s", 2)
	bare := postrider.DeliveryAttempt{MessageID: "b", Relay: "r", Attempt: 1, At: first.At, Outcome: "delivered"}
	e.record(time.Hour, second, bare, first, other)
	e.checkAttempts("a", first, second, other)
	e.checkAttempts("b", bare)
	e.checkAttempts("nobody")
}

func attemptsOnce(e *env) {
	a := attempt("a", "r", 1)
	again := a // the same number after an outage, or a redrive
	again.At = a.At.Add(time.Second)
	e.record(time.Hour, a)
	e.record(time.Hour, a, again)
	e.checkAttempts("a", a, again)
}

func attemptsBounded(e *env) {
	var all, others []postrider.DeliveryAttempt
	for n := range 2*postrider.KeptAttempts + 3 {
		all = append(all, attempt("a", "r", n+1))
	}
	for n := range 3 {
		others = append(others, attempt("a", "s", n+1))
	}
	e.record(time.Hour, others...)
	for part := range slices.Chunk(all, 40) {
		e.record(time.Hour, part...)
	}
	kept := all[len(all)-postrider.KeptAttempts:]
	e.checkAttempts("a", append(slices.Clone(others), kept...)...)
}

func attemptsDropped(e *env) {
	stays, goes := attempt("a", "r", 1), attempt("a", "r", 2)
	e.record(time.Hour, stays)
	e.record(time.Millisecond, goes)
	e.clockMoves(20 * time.Millisecond)
	n, err := e.attemptLog().DropAttempts(e.ctx)
	if e.must(err, "drop attempts"); n != 1 {
		e.t.Errorf("dropped %d, want 1", n)
	}
	e.checkAttempts("a", stays)
	n, err = e.attemptLog().DropAttempts(e.ctx)
	if e.must(err, "drop attempts"); n != 0 {
		e.t.Errorf("dropped %d more, want 0", n)
	}
}
