package inspect_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/inspect"
	"github.com/postrider/postrider/store"
)

// parkedActions are the decisions about a parked message that waits by itself.
var parkedActions = []inspect.ActionKind{inspect.ActionRetry, inspect.ActionSkip, inspect.ActionDeadLetter}

var statesOfAMessage = map[string]struct {
	arrange func(b bundle)
	state   inspect.State
	next    inspect.NextCode
	actions []inspect.ActionKind
	ahead   *inspect.Ahead
	check   func(p inspect.Place) bool
}{
	"waiting": {
		func(b bundle) { b.lease("r", worker); b.publish("", "m-1", "m-2") }, inspect.Waiting, inspect.NextDelivery, nil,
		&inspect.Ahead{N: 1, AtMost: true}, func(p inspect.Place) bool { return p.Owner == "host-1" && !p.Since.IsZero() },
	},
	"waiting without a process": {
		func(b bundle) { b.settle("r", deliver); b.publish("", "m-2") }, inspect.Waiting, inspect.NextProcess,
		[]inspect.ActionKind{inspect.ActionStart}, &inspect.Ahead{AtMost: true}, nil,
	},
	"delivered or skipped": {
		func(b bundle) { b.publish("", "m-2"); b.settle("r", deliver) }, inspect.DeliveredOrSkipped, inspect.NextNothing, nil, nil, nil,
	},
	"not taken": {
		func(b bundle) {
			b.publish("", "m-2")
			b.lease("r", store.Owner{ID: "o", Topics: []string{"bills"}})
		}, inspect.NotTaken, inspect.NextNothing, nil, nil, func(p inspect.Place) bool { return slices.Equal(p.Topics, []string{"bills"}) },
	},
	"not begun": {
		func(b bundle) {
			b.publish("", "m-2")
			_, err := b.Heartbeat(b.t.Context(), "r", worker, time.Hour)
			b.must(err)
		}, inspect.NotBegun, inspect.NextProcess, []inspect.ActionKind{inspect.ActionStart}, nil, nil,
	},
	"blocking": {
		func(b bundle) { b.publish("k", "m-2", "m-3"); b.settle("r", hold); b.lease("r", worker) }, inspect.Blocking, inspect.NextAttempt,
		[]inspect.ActionKind{inspect.ActionRetry, inspect.ActionSkip, inspect.ActionDeadLetter}, nil,
		func(p inspect.Place) bool {
			return p.Cause == "answer 503" && p.Attempts == 3 && len(p.History) == 1 && p.HeldKey.Parked == 2 &&
				p.Next.At.Equal(p.Since.Add(time.Minute)) && p.Actions[1].MessageID == "m-2"
		},
	},
	"queued": {
		func(b bundle) { b.publish("k", "m-1", "m-2"); b.settle("r", hold); b.lease("r", worker) }, inspect.Queued, inspect.NextTurn,
		[]inspect.ActionKind{inspect.ActionRetry, inspect.ActionSkip, inspect.ActionDeadLetter}, &inspect.Ahead{N: 1},
		func(p inspect.Place) bool { return p.HeldKey.Attempts == 3 && p.Actions[1].MessageID == "m-1" },
	},
	"queued without a process": {
		func(b bundle) { b.publish("k", "m-1", "m-2"); b.settle("r", hold) }, inspect.Queued, inspect.NextProcess,
		[]inspect.ActionKind{inspect.ActionRetry, inspect.ActionSkip, inspect.ActionDeadLetter, inspect.ActionStart}, &inspect.Ahead{N: 1}, nil,
	},
	"queued for a decision": {
		func(b bundle) { b.publish("k", "m-1", "m-2"); b.settle("r", holdForDead) }, inspect.Queued, inspect.NextDecision,
		[]inspect.ActionKind{inspect.ActionRedrive, inspect.ActionDiscard, inspect.ActionSkip}, &inspect.Ahead{}, nil,
	},
	"parked": {
		func(b bundle) { b.publish("", "m-2"); b.settle("r", retryIn(time.Hour)); b.lease("r", worker) }, inspect.Parked, inspect.NextAttempt,
		parkedActions, nil, func(p inspect.Place) bool {
			return p.Reason == "retry" && p.Cause == "answer 503" && p.Attempts == 2 && p.Next.At.Equal(p.Since.Add(time.Hour))
		},
	},
	"parked and due, without a process": {
		func(b bundle) { b.publish("", "m-2"); b.settle("r", retryIn(0)) }, inspect.Parked, inspect.NextProcess,
		append(parkedActions, inspect.ActionStart), nil, func(p inspect.Place) bool { return p.Next.Text == "due: nobody works on this partition" },
	},
	"parked by a consumer": {
		func(b bundle) { b.enroll("r", message("m-2", "")) }, inspect.Parked, inspect.NextProcess, append(parkedActions, inspect.ActionStart),
		nil, func(p inspect.Place) bool { return p.Kind == store.KindConsumer },
	},
	"dead": {
		func(b bundle) { b.publish("", "m-2"); b.settle("r", deadLetter) }, inspect.Dead, inspect.NextDecision,
		[]inspect.ActionKind{inspect.ActionRedrive, inspect.ActionDiscard}, nil,
		func(p inspect.Place) bool {
			return p.Reason == "attempts exhausted" && p.Attempts == 10 && p.DeadLetter.Number == 1 && p.Since.Equal(p.DeadLetter.DiedAt) &&
				p.Actions[0].DeadLetter == 1
		},
	},
	"dead and holding its key": {
		func(b bundle) { b.publish("k", "m-2", "m-3"); b.settle("r", holdForDead) }, inspect.Dead, inspect.NextDecision,
		[]inspect.ActionKind{inspect.ActionRedrive, inspect.ActionDiscard}, nil,
		func(p inspect.Place) bool { return p.DeadLetter.HoldsKey && p.HeldKey.Parked == 1 },
	},
	"discarded": {
		func(b bundle) {
			b.publish("", "m-2")
			b.settle("r", deadLetter)
			_, err := deadletter.New(b).DiscardDead(b.t.Context(), store.DeadFilter{Numbers: []int64{1}}, "ann", "too old", 0)
			b.must(err)
		}, inspect.Discarded, inspect.NextNothing, nil, nil,
		func(p inspect.Place) bool {
			return p.DeadLetter.ResolvedBy == "ann" && p.DeadLetter.Resolution == "too old"
		},
	},
	"redriven and parked": {
		redriven, inspect.Parked, inspect.NextProcess, append(parkedActions, inspect.ActionStart), nil,
		func(p inspect.Place) bool { return p.Reason == "redriven" && len(p.Redrives) == 2 },
	},
	"redriven and delivered": {
		func(b bundle) { redriven(b); b.parked("r", removeParked) }, inspect.Delivered, inspect.NextNothing, nil, nil,
		func(p inspect.Place) bool {
			return len(p.Redrives) == 2 && p.Redrives[0].Kind == inspect.EventDied && p.Redrives[1].Kind == inspect.EventRedriven &&
				p.Redrives[1].By == "ann"
		},
	},
	"of a consumer that reads a broker": {
		func(b bundle) { b.publish("", "m-2"); b.enroll("r", nil) }, inspect.Unknown, inspect.NextUnknown, nil, nil, nil,
	},
	"of a relay that does not know it": {
		func(b bundle) { b.settle("r", deliver); b.enroll("c", message("m-2", "")) }, inspect.Unknown, inspect.NextUnknown, nil, nil, nil,
	},
}

// TestStatesOfAMessage: each case explains message m-2, for relay or consumer "r".
func TestStatesOfAMessage(t *testing.T) {
	t.Parallel()
	for name, tt := range statesOfAMessage {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				tt.arrange(b)
				e, err := inspect.Message(t.Context(), b, "m-2")
				b.must(err)
				p := place(t, e, "r")
				var actions []inspect.ActionKind
				for _, a := range p.Actions {
					actions = append(actions, a.Kind)
				}
				sameAhead := p.Ahead == tt.ahead || p.Ahead != nil && tt.ahead != nil && *p.Ahead == *tt.ahead
				if p.State != tt.state || p.Next.Code != tt.next || p.Next.Text == "" || !slices.Equal(actions, tt.actions) || !sameAhead {
					t.Errorf("explained: %+v, ahead %+v; want %s, next %s, %v, ahead %+v", p, p.Ahead, tt.state, tt.next, tt.actions, tt.ahead)
				}
				if tt.check != nil && !tt.check(p) {
					t.Errorf("explained: %+v\nheld key %+v, dead letter %+v", p, p.HeldKey, p.DeadLetter)
				}
			})
		})
	}
}

// redriven makes m-2 a dead letter that was redriven.
func redriven(b bundle) {
	b.publish("", "m-2")
	b.settle("r", deadLetter)
	_, err := deadletter.New(b).RedriveDead(b.t.Context(), store.DeadFilter{Numbers: []int64{1}}, "ann", 0)
	b.must(err)
}

func TestUnroutedMessage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.publish("", "m-1")
	e, err := inspect.Message(t.Context(), b, "m-1")
	b.must(err)
	if e.Unrouted || e.Next == nil || e.Next.Code != inspect.NextProcess || e.Actions[0].Kind != inspect.ActionStart || e.Places == nil {
		t.Errorf("before any relay has run: %+v", e)
	}
	b.lease("r", store.Owner{ID: "o", Topics: []string{"bills"}})
	e, err = inspect.Message(t.Context(), b, "m-1")
	b.must(err)
	if !e.Unrouted || e.Next == nil || e.Next.Code != inspect.NextDrop || e.Actions[0] != (inspect.Action{Kind: inspect.ActionRoute, Topic: "orders"}) {
		t.Errorf("explained: %+v", e)
	}
}

func TestOriginsOfAMessage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.publish("", "published")
	b.settle("r", retryIn(time.Hour))
	b.enroll("c", message("received", ""))
	_, err := deadletter.New(b).ImportDead(t.Context(), []store.ArchivedDead{{DeadLetter: store.DeadLetter{
		Relay: "gone", Message: message("imported", ""), Reason: "refused", State: store.DeadOpen, DiedAt: time.Now(), Number: 7,
	}}})
	b.must(err)
	for id, want := range map[string]inspect.MessageInfo{
		"published": {Origin: inspect.OriginPublished, InLog: true, Sequence: 1},
		"received":  {Origin: inspect.OriginReceived, Consumer: "c"},
		"imported":  {Origin: inspect.OriginImported, ImportedAs: 1},
	} {
		e, err := inspect.Message(t.Context(), b, id)
		b.must(err)
		got := *e.Message
		if got.Origin != want.Origin || got.InLog != want.InLog || got.Sequence != want.Sequence || got.Consumer != want.Consumer ||
			got.ImportedAs != want.ImportedAs || got.ID != id || got.Topic != "orders" {
			t.Errorf("%s: %+v", id, got)
		}
	}
}

// TestParkedMessageIsFoundWithoutTheLog: a parked message outlives its row in the log.
func TestParkedMessageIsFoundWithoutTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.publish("", "m-1")
		b.settle("r", retryIn(time.Hour))
		time.Sleep(time.Minute)
		_, err := b.Maintain(t.Context(), store.Retention{})
		b.must(err)
		e, err := inspect.Message(t.Context(), b, "m-1")
		b.must(err)
		if e.Message.InLog || e.Message.Origin != inspect.OriginPublished || e.Message.Sequence != 1 || place(t, e, "r").State != inspect.Parked {
			t.Errorf("explained: %+v %+v", e.Message, e.Places)
		}
	})
}

func TestMessageThatIsNowhere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, id := range []string{"nobody", postrider.NewID()} {
		_, err := inspect.Message(t.Context(), b, id)
		if !errors.Is(err, inspect.ErrNotFound) || !strings.Contains(err.Error(), strconv.Quote(id)) {
			t.Errorf("%s: %v", id, err)
		}
	}
}
