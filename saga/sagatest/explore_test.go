package sagatest

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/saga/internal/machine"
)

// order is the data of the sagas of these tests.
type order struct {
	ID       string `json:"id"`
	Card     bool   `json:"card"`
	Reviewed bool   `json:"reviewed"`
	Parcel   string `json:"parcel"`
}

type orderLine struct {
	SKU string `json:"sku"`
	ID  string `json:"id"`
}

type command struct{ Order string }

type reply struct{ ID string }

type tx struct{}

var (
	reserve  = saga.DefineStep[command, reply]("stock.reserve").WithTopic("stock")
	charge   = saga.DefineStep[command, reply]("card.charge").WithTopic("cards")
	ship     = saga.DefineStep[command, reply]("parcel.ship").WithTopic("parcels").WithoutUndo()
	notify   = saga.DefineStep[command, reply]("mail.send").WithTopic("mail").WithoutUndo()
	reviewed = postrider.Define[reply]("order.reviewed")
)

func request(name string, step saga.StepDefinition[command, reply]) saga.Request[order, command, reply] {
	return saga.Request[order, command, reply]{
		Name: name, Step: step, Command: func(o order) command { return command{o.ID} }, Done: func(o *order, r reply) { o.Parcel += r.ID },
	}
}

func pivot(r saga.Request[order, command, reply]) saga.Request[order, command, reply] {
	r.Pivot = true
	return r
}

// each reserves two lines of an order.
func each(window int) saga.Each[order, orderLine] {
	return saga.Each[order, orderLine]{
		Name: "lines", Items: func(order) []orderLine { return []orderLine{{SKU: "a"}, {SKU: "b"}} }, ID: func(l orderLine) string { return l.SKU }, Window: window,
		Steps: []saga.Step[orderLine]{saga.Request[orderLine, command, reply]{
			Name: "reserve", Step: reserve, Command: func(l orderLine) command { return command{l.SKU} }, Done: func(l *orderLine, r reply) { l.ID = r.ID },
		}},
		Join: func(o *order, lines []orderLine) {
			for _, l := range lines {
				o.Parcel += l.SKU
			}
		},
	}
}

func nothing(context.Context, tx, *order) error { return nil }

func local(name string) saga.Local[order, tx] { return localOf[order](name) }

// childStep starts a saga of these steps.
func childStep(pivot bool, steps ...saga.Step[order]) saga.Child[order, order] {
	return saga.Child[order, order]{
		Name: "payment", Saga: saga.Definition[order]{Name: "payment", Version: 1, Steps: steps}, Pivot: pivot,
		Data: func(o order) order { return o }, Done: func(o *order, child order) { o.Parcel += child.Parcel },
	}
}

func localOf[D any](name string) saga.Local[D, tx] {
	nothing := func(context.Context, tx, *D) error { return nil }
	return saga.Local[D, tx]{Name: name, Do: nothing, Undo: nothing}
}

// definitions are sagas that contain every construct, alone and combined.
func definitions() map[string]saga.Definition[order] {
	define := func(steps ...saga.Step[order]) saga.Definition[order] {
		return saga.Definition[order]{Name: "orders", Version: 1, Steps: steps}
	}
	twice := request("charge", charge)
	twice.Attempts = 2
	continues := request("notify", notify)
	continues.Refused = func(*order, saga.Refusal) {}
	deadline := define(request("reserve", reserve), pivot(request("ship", ship)))
	deadline.Deadline = 45 * time.Second
	timer := saga.Await[order, reply]{Name: "wait", Signal: reviewed, Timeout: time.Hour, TimedOut: func(*order) {}}
	return map[string]saga.Definition[order]{
		"sequence":        define(request("reserve", reserve), request("charge", charge)),
		"pivot":           define(request("reserve", reserve), pivot(request("ship", ship)), request("notify", notify)),
		"pivot with undo": define(request("reserve", reserve), pivot(request("charge", charge))),
		"local pivot":     define(local("book"), saga.Local[order, tx]{Name: "commit", Pivot: true, Do: nothing}, request("charge", charge)),
		"no undo":         define(request("notify", notify), request("charge", charge)),
		"attempts":        define(twice, local("book")),
		"continues":       define(request("charge", charge), continues, pivot(request("ship", ship))),
		"deadline":        deadline,
		"local":           define(local("book"), request("charge", charge)),
		"choose": define(request("reserve", reserve), saga.Choose[order]{Name: "pay", Cases: []saga.Case[order]{
			{Name: "card", If: func(o order) bool { return o.Card }, Steps: []saga.Step[order]{request("charge", charge)}},
			{Name: "account", Steps: []saga.Step[order]{local("debit")}},
		}}),
		"parallel": define(saga.Parallel[order]{Name: "both", Steps: []saga.Step[order]{
			request("reserve", reserve), local("book")}}),
		"child":               define(childStep(false, request("charge", charge)), request("reserve", reserve)),
		"child as pivot":      define(request("reserve", reserve), childStep(true, request("charge", charge), pivot(request("ship", ship))), request("notify", notify)),
		"each":                define(each(0)),
		"each, one at a time": define(each(1)),
		"await": define(request("reserve", reserve), saga.Await[order, reply]{
			Name: "review", Signal: reviewed, Timeout: time.Hour, Received: func(o *order, _ reply) { o.Reviewed = true }}),
		"pivot and await": define(pivot(request("ship", ship)), saga.Await[order, reply]{Name: "review", Signal: reviewed, Timeout: saga.NoTimeout}),
		"timer":           define(request("reserve", reserve), timer, request("charge", charge)),
		"ask": define(request("reserve", reserve), saga.Ask[order]{
			Name: "release", Question: func(o order) string { return "Release " + o.ID + "?" }, Options: []string{"yes", "no"},
			Timeout: time.Hour, Answered: func(_ *order, a saga.Answer) error {
				if a.Option == "no" {
					return saga.Refuse("rejected", nil)
				}
				return nil
			}}),
	}
}

// duplicates is 1 for definitions whose histories with duplicates are few enough for a test.
var duplicates = map[string]int{"sequence": 1, "pivot": 1, "no undo": 1, "attempts": 1, "local": 1, "parallel": 1, "await": 1, "ask": 1}

// TestExplore: no history of any construct breaks a promise.
func TestExplore(t *testing.T) {
	t.Parallel()
	for name, d := range definitions() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := [][]Option{{Duplicates(duplicates[name])}, {AnyOrder(), Cancel(), Duplicates(0)}, {Operators(), Duplicates(0)}, {AsChild(), Duplicates(0)}}
			if name == "each" { // in any order, it has too many histories for a test
				all[1] = []Option{Cancel(), Duplicates(0)}
			}
			if testing.Short() {
				all = all[:1]
			}
			for _, options := range all {
				start := time.Now()
				found := Explore(t, d, order{ID: "42", Card: true}, options...)
				t.Logf("%d states, %d moves, ends %v, %s", found.States, found.Moves, found.Ends, time.Since(start))
				if !found.Complete || found.Ends[saga.Completed] == 0 || found.Ends[saga.Compensated] == 0 {
					t.Errorf("complete: %t, ends: %v; want all states, some completed and some compensated", found.Complete, found.Ends)
				}
			}
		})
	}
}

// TestThreeBranches (A22): of three branches, the second is refused while the others wait or are done. In whatever order everything arrives,
// late or not, nothing is left.
func TestThreeBranches(t *testing.T) {
	t.Parallel()
	const most = 40_000 // there are 46 times as many states as with two branches if every branch answers in every way
	found := exploreThree(t, true)
	if found.Ends[saga.Completed] > 0 || found.States > most {
		t.Errorf("%d instances were completed, %d states; want none, and at most %d", found.Ends[saga.Completed], found.States, most)
	}
}

// TestThreeBranchesTorture: the same with every answer of every branch; and with a message that arrives twice, or messages in any order. TestExplore
// does both with two branches.
func TestThreeBranchesTorture(t *testing.T) {
	t.Parallel()
	if os.Getenv("POSTRIDER_TORTURE") == "" {
		t.Skip("POSTRIDER_TORTURE is not set")
	}
	if found := exploreThree(t, false); found.Ends[saga.Completed] == 0 {
		t.Error("no instance was completed")
	}
	exploreThree(t, true, Duplicates(1))
	exploreThree(t, true, AnyOrder())
}

// exploreThree explores a Parallel of three requests. If refused, the second is refused, and the others are not.
func exploreThree(t *testing.T, refused bool, options ...Option) Explored {
	t.Helper()
	deliver := saga.DefineStep[command, reply]("parcel.ship").WithTopic("parcels")
	d, err := saga.Definition[order]{Name: "orders", Version: 1, Steps: []saga.Step[order]{saga.Parallel[order]{Name: "all", Steps: []saga.Step[order]{
		request("reserve", reserve), request("charge", charge), request("ship", deliver)}}}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	e := newExplorer(t, newModel(d, policy(2)), []byte(`{"id":"42"}`))
	e.duplicates = 0
	for _, o := range options {
		o(e)
	}
	if refused {
		e.next = func(w *world) []move { return slices.DeleteFunc(e.moves(w), answersOtherwise) }
	}
	found := e.report()
	t.Logf("%d states, %d moves, ends %v", found.States, found.Moves, found.Ends)
	if !found.Complete || found.Ends[saga.Compensated] == 0 {
		t.Errorf("complete: %t, ends: %v; want all states, some compensated", found.Complete, found.Ends)
	}
	return found
}

// answersOtherwise says whether a move is an answer other than that the second branch is refused and the others are done.
func answersOtherwise(m move) bool {
	message, answer, answered := strings.Cut(m.label, " is delivered: ")
	want := machine.OutcomeDone
	if strings.HasPrefix(message, "command all/charge ") {
		want = machine.OutcomeRefused
	}
	return answered && !strings.HasPrefix(answer, string(want))
}
