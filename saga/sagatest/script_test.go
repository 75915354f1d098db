package sagatest

import (
	"testing"
	"time"

	"github.com/postrider/postrider/saga"
)

// TestScript: each answer that a script can give.
//
// size: a table of cases.
func TestScript(t *testing.T) {
	t.Parallel()
	steps := []saga.Step[order]{request("reserve", reserve), request("charge", charge), pivot(request("ship", ship)), request("notify", notify)}
	d := saga.Definition[order]{Name: "orders", Version: 1, Steps: steps}
	tests := map[string]struct {
		script   func(s *Script[order])
		want     saga.Status
		cause    saga.Cause
		parcel   string
		commands []string
	}{
		"happy path": {
			script: func(s *Script[order]) { Answer(s, ship, reply{"p-1"}) }, want: saga.Completed, parcel: "p-1",
			commands: []string{"stock.reserve", "card.charge", "parcel.ship", "mail.send"},
		},
		"refused": {
			script: func(s *Script[order]) { s.Refuse(charge, "limit") }, want: saga.Compensated,
			cause:    saga.Cause{Kind: saga.CauseRefused, Step: "charge", Reason: "limit"},
			commands: []string{"stock.reserve", "card.charge", "stock.reserve.undo"},
		},
		"late before its timeout": {
			script: func(s *Script[order]) { s.Late(charge, 29*time.Second) }, want: saga.Completed,
			commands: []string{"stock.reserve", "card.charge", "parcel.ship", "mail.send"},
		},
		"late after its timeout": {
			script: func(s *Script[order]) { s.Late(charge, 31*time.Second) }, want: saga.Compensated,
			cause:    saga.Cause{Kind: saga.CauseTimedOut, Step: "charge"},
			commands: []string{"stock.reserve", "card.charge", "card.charge.undo", "stock.reserve.undo"},
		},
		"no reply of the pivot": {
			script: func(s *Script[order]) { s.NoReply(ship) }, want: saga.Completed,
			commands: []string{"stock.reserve", "card.charge", "parcel.ship", "parcel.ship.undo", "mail.send"},
		},
		"no reply after the pivot": {
			script: func(s *Script[order]) { s.NoReply(notify) }, want: saga.Stuck,
			commands: []string{"stock.reserve", "card.charge", "parcel.ship", "mail.send", "mail.send"},
		},
		"cancelled": {
			script: func(s *Script[order]) {
				s.Late(charge, 10*time.Second)
				s.Operate(5*time.Second, saga.Operation{Verb: saga.Cancel, Actor: "ann", Reason: "changed her mind"})
			}, want: saga.Compensated,
			cause:    saga.Cause{Kind: saga.CauseCancelled, Reason: "changed her mind"},
			commands: []string{"stock.reserve", "card.charge", "card.charge.undo", "stock.reserve.undo"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := New(t, d)
			tt.script(s)
			got := s.Run(order{ID: "42"})
			s.Want(got, tt.want)
			s.WantCommands(tt.commands...)
			if got.Data.Parcel != tt.parcel {
				t.Errorf("parcel %q, want %q", got.Data.Parcel, tt.parcel)
			}
			if cause := got.Cause; (cause == nil) != (tt.cause == saga.Cause{}) || cause != nil && *cause != tt.cause {
				t.Errorf("cause %+v, want %+v", cause, tt.cause)
			}
		})
	}
}

func TestScriptOfLocalStepsAndSignals(t *testing.T) {
	t.Parallel()
	d := saga.Definition[order]{Name: "orders", Version: 1, Steps: []saga.Step[order]{
		local("book"), saga.Await[order, reply]{
			Name: "review", Signal: reviewed, Timeout: time.Hour, Received: func(o *order, r reply) { o.Reviewed = r.ID == "yes" }},
	}}
	s := New(t, d)
	s.Local("book", func(o *order) error { o.Parcel = "booked"; return nil }, func(o *order) error { o.Parcel = ""; return nil })
	s.Fail("book", 3)
	Signal(s, time.Minute, reviewed, reply{"yes"})
	if got := s.Run(order{}); got.Status != saga.Completed || got.Data.Parcel != "booked" || !got.Data.Reviewed {
		t.Errorf("%s with data %+v; want it completed, booked and reviewed", got.Status, got.Data)
	}
	s.events = nil // nobody reviews
	if got := s.Run(order{}); got.Status != saga.Compensated || got.Data.Parcel != "" {
		t.Errorf("%s with data %+v; want it compensated and not booked", got.Status, got.Data)
	}
}
