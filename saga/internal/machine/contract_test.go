package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
)

// shop is a contract: created → reserved → charged → confirmed, and then perhaps shipped.
func shop(t *testing.T, change ...func(c *Contract)) *Contract {
	t.Helper()
	undo := func(name string) UndoRequest { return UndoRequest{Type: name + ".undo", Topic: "requests"} }
	c := &Contract{Name: "shop", Version: 1, Deadline: time.Hour, Events: []*Expected{
		{Name: "created", Service: "orders", Start: true, Undo: undo("created"), Undone: "created.undone"},
		{Name: "reserved", Service: "stock", After: [][]string{{"created"}}, Fails: []string{"unavailable"}, Undo: undo("reserved"), Undone: "reserved.undone"},
		{Name: "charged", Service: "cards", After: [][]string{{"reserved"}}, Fails: []string{"declined"}, Undo: undo("charged"), Undone: "charged.undone"},
		{Name: "confirmed", Service: "orders", After: [][]string{{"charged"}}, End: true},
		{Name: "shipped", Service: "parcels", After: [][]string{{"confirmed"}}, Optional: true, Pivot: true, Undo: undo("shipped"), Undone: "shipped.undone"},
	}}
	for _, f := range change {
		f(c)
	}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	return c
}

// run is an instance of a contract in a test.
type run struct {
	*testing.T
	c      *Contract
	policy Policy
	in     Instance
	out    Output
	age    time.Duration
}

func begin(t *testing.T, c *Contract) *run {
	return &run{T: t, c: c, policy: testPolicy, in: Instance{ID: "id", Run: "run", State: State{Token: "token"}}}
}

func (r *run) input(input Input) {
	r.Helper()
	input.Age, input.ReadUpTo = r.age, r.age
	in, out, err := r.c.Advance(r.policy, r.in, input)
	if err != nil {
		r.Fatal(err)
	}
	r.in, r.out = in, out
}

// sees takes events, by type.
func (r *run) sees(types ...string) *run {
	r.Helper()
	for _, messageType := range types {
		r.input(Input{Process: "p", Event: &postrider.Message{Type: messageType, ID: "m-" + messageType, Key: "k", Payload: []byte(`{"of":"` + messageType + `"}`)}})
	}
	return r
}

// fires lets time pass until the timer.
func (r *run) fires() *run {
	r.Helper()
	if r.in.State.Timer.At == 0 {
		r.Fatal("no timer is set")
	}
	r.age = max(r.age, r.in.State.Timer.At)
	r.input(Input{Timer: &Fired{ID: r.in.State.Timer.ID}})
	return r
}

func (r *run) says(kind VerbKind, step string) *run {
	r.Helper()
	r.input(Input{Verb: &Verb{Kind: kind, Step: step, Actor: "ann", Reason: "test"}})
	return r
}

// sent are the undos that the last transition sent.
func (r *run) sent() (types []string) {
	for _, c := range r.out.Commands {
		types = append(types, c.Message.Type)
	}
	return types
}

func (r *run) is(status Status) *run {
	r.Helper()
	if got := r.in.State.Status(); got != status {
		r.Fatalf("the instance is %s (%+v), want %s; its events: %s", got, r.in.State.Cause, status, r.events())
	}
	return r
}

func (r *run) events() string {
	var text []string
	for _, path := range slices.Sorted(maps.Keys(r.in.State.Steps)) {
		st := r.in.State.Steps[path]
		text = append(text, fmt.Sprintf("%s %s %t %s", path, st.Status, st.Owed, st.Reason))
	}
	return strings.Join(text, ", ")
}

// undoing checks which undo was sent, and confirms it.
func (r *run) undoing(events ...string) *run {
	r.Helper()
	for _, e := range events {
		if got := r.sent(); !slices.Equal(got, []string{e + ".undo"}) {
			r.Fatalf("sent %q, want the undo of %s; the events: %s", got, e, r.events())
		}
		r.sees(e + ".undone")
	}
	return r
}

// TestContractInAnyOrder: whatever the order of the events, and however often each comes, the end is the same.
func TestContractInAnyOrder(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		observe bool
		events  []string
		want    Status
	}{
		"completed":             {false, []string{"created", "reserved", "charged", "confirmed"}, Completed},
		"with a pivot":          {false, []string{"created", "reserved", "charged", "confirmed", "shipped"}, Completed},
		"observed, compensated": {true, []string{"created", "reserved", "declined", "reserved.undone", "created.undone"}, Compensated},
		"observed, unavailable": {true, []string{"created", "unavailable", "created.undone"}, Compensated},
	} {
		c := shop(t, func(c *Contract) {
			c.Observe = tt.observe
		})
		for _, order := range orders(tt.events) {
			r := begin(t, c).sees(order...)
			if r.sees(order...); r.in.State.Ended != tt.want {
				t.Errorf("%s: %q ends as %s, want %s: %s", name, order, r.in.State.Status(), tt.want, r.events())
			}
		}
	}
}

// TestContractUndoesInAnyOrder: whatever the order of the events before a failure, everything is undone.
func TestContractUndoesInAnyOrder(t *testing.T) {
	t.Parallel()
	for _, order := range orders([]string{"created", "reserved", "declined"}) {
		r := begin(t, shop(t)).sees(order...).is(Compensating)
		undone := make(map[string]int)
		for range 5 { // each undo is confirmed until the end
			for path, st := range r.in.State.Steps {
				if st.Status == StepUndoing {
					undone[path]++
					r.sees(path + ".undone")
					break
				}
			}
		}
		if r.is(Compensated); undone["reserved"] == 0 || undone["created"] == 0 || undone["charged"] > 0 {
			t.Errorf("%q: undone %v", order, undone)
		}
		if r.in.State.Cause.Kind != CauseRefused {
			t.Errorf("%q: cause %+v", order, r.in.State.Cause)
		}
	}
}

func orders(of []string) (all [][]string) {
	if len(of) == 0 {
		return [][]string{nil}
	}
	for i, first := range of {
		rest := slices.Delete(slices.Clone(of), i, i+1)
		for _, o := range orders(rest) {
			all = append(all, append([]string{first}, o...))
		}
	}
	return all
}

// TestContractTurnsBack: what is undone, by what has happened and why it turns back.
func TestContractTurnsBack(t *testing.T) {
	t.Parallel()
	begin(t, shop(t)).sees("created", "unavailable").is(Compensating).undoing("created").is(Compensated)
	begin(t, shop(t)).sees("created", "reserved", "declined").undoing("reserved", "created").is(Compensated)

	r := begin(t, shop(t)).sees("created", "reserved").fires() // the deadline: nobody knows whether the rest has happened
	if cause := r.in.State.Cause; cause.Kind != CauseTimedOut || cause.Text != "waiting for charged from cards" {
		t.Errorf("cause %+v", cause)
	}
	r.undoing("shipped", "charged", "reserved", "created").is(Compensated)
	r.sees("charged").is(Compensating).undoing("charged").is(Compensated) // a foreign participant does it after its undo

	r = begin(t, shop(t)).sees("created", "shipped", "declined").is(Stuck) // refused after the pivot
	r.says(VerbSkip, "charged").sees("reserved", "confirmed").is(Completed)

	forced := begin(t, shop(t, func(c *Contract) { c.Events[4] = pivotForGood(c.Events[4]) }))
	forced.sees("created", "reserved", "charged", "shipped")
	forced.input(Input{Verb: &Verb{Kind: VerbCompensate, Force: true, Actor: "ann", Reason: "r"}})
	forced.undoing("charged", "reserved", "created").is(Compensated)
}

// pivotForGood is an event that cannot be undone.
func pivotForGood(e *Expected) *Expected {
	e.NoUndo, e.Undo, e.Undone = true, UndoRequest{}, ""
	return e
}

// TestContractPivotUnknown: a pivot that nobody can settle is for an operator.
func TestContractPivotUnknown(t *testing.T) {
	t.Parallel()
	c := shop(t, func(c *Contract) {
		c.CancelWithin, c.Events[3].NoUndo, c.Events[4] = time.Hour, true, pivotForGood(c.Events[4])
	})
	confirmed := []string{"created", "reserved", "charged", "confirmed"}
	begin(t, c).sees(confirmed...).is(Completed).says(VerbCancel, "").is(Stuck).says(VerbUndone, "shipped").undoing("charged", "reserved", "created").is(Compensated)
	begin(t, c).sees(confirmed...).says(VerbCancel, "").is(Stuck).says(VerbDone, "shipped").is(Completed)
	begin(t, c).sees(confirmed...).says(VerbCancel, "").is(Stuck).sees("shipped").is(Completed)
	late := begin(t, c).sees(confirmed...).says(VerbCancel, "").says(VerbUndone, "shipped").undoing("charged").sees("shipped").is(Stuck)
	if !strings.Contains(late.events(), "the pivot has happened, and charged is undone") {
		t.Error(late.events())
	}
}

// TestContractUndoRequest: an undo has what its service needs, is sent again, and is stuck in the end.
func TestContractUndoRequest(t *testing.T) {
	t.Parallel()
	r := begin(t, shop(t)).sees("created", "reserved", "declined")
	command := r.out.Commands[0]
	if m := command.Message; string(m.Payload) != `{"of":"reserved"}` || m.Topic != "requests" || m.Key != "k" || command.Process != "p" ||
		command.Contract != "shop" || !command.Seen {
		t.Errorf("the undo is %+v of %+v", m, command)
	}
	for range testPolicy.UndoAttempts {
		r.is(Compensating).fires()
	}
	if r.is(Stuck); !strings.Contains(r.events(), "stock has not undone it: there was no reserved.undone after") {
		t.Error(r.events())
	}
	r.says(VerbRetry, "").undoing("reserved", "created").is(Compensated)

	r = begin(t, shop(t)).sees("created", "declined")
	if m := r.out.Commands[0].Message; m.Type != "reserved.undo" || string(m.Payload) != "null" || r.out.Commands[0].Seen {
		t.Errorf("the undo of an event that was not seen is %+v", r.out.Commands[0])
	}
	r = begin(t, shop(t)).sees("created", "reserved", "declined")
	r.input(Input{Reply: &Reply{SentAs: "reserved", Token: "token", Outcome: OutcomeCannotUndo}})
	r.is(Stuck)
}

// TestContractUndoThatCannotBeSent: a request that the outbox would refuse, such as with the content type of another sender, is for an
// operator.
func TestContractUndoThatCannotBeSent(t *testing.T) {
	t.Parallel()
	r := begin(t, shop(t))
	r.policy.Check = func(m *postrider.Message) error {
		if m.Type == "reserved.undo" {
			return errors.New("is not a media type")
		}
		return nil
	}
	if r.sees("created", "reserved", "declined").is(Stuck); len(r.out.Commands) > 0 || !strings.Contains(r.events(), "is not a media type") {
		t.Errorf("sent %v; %s", r.out.Commands, r.events())
	}
	r.says(VerbRetry, "").is(Stuck).says(VerbUndone, "reserved").undoing("created").is(Compensated)
}

// TestContractAlternatives: one of several events suffices, and what comes after the others is not awaited.
func TestContractAlternatives(t *testing.T) {
	t.Parallel()
	c := shop(t, func(c *Contract) {
		charged, confirmed := c.Events[2], c.Events[3]
		debited := &Expected{Name: "debited", Service: "bank", After: [][]string{{"reserved"}}, Undo: UndoRequest{Type: "debited.undo"}, Undone: "debited.undone"}
		booked := &Expected{Name: "booked", Service: "bank", After: [][]string{{"debited"}}, NoUndo: true}
		confirmed.After = [][]string{{"charged", "booked"}}
		c.Events = []*Expected{c.Events[0], c.Events[1], charged, debited, booked, confirmed}
	})
	begin(t, c).sees("created", "reserved", "charged", "confirmed").is(Completed)
	begin(t, c).sees("created", "reserved", "debited", "confirmed").is(Running).sees("booked").is(Completed)
	if got := begin(t, c).sees("created", "reserved", "debited").in.State.Waiting(); !slices.Equal(got, []string{"booked"}) {
		t.Errorf("after the first event of an alternative, it waits for %q", got)
	}
	r := begin(t, c).sees("created", "reserved").says(VerbCancel, "")
	r.undoing("debited", "charged", "reserved", "created").is(Compensated)
}

// TestContractItems: an event of several items has happened when it has for all of them, and is undone for each.
func TestContractItems(t *testing.T) {
	t.Parallel()
	c := shop(t, func(c *Contract) {
		e := c.Events[1]
		e.Each, e.ItemsFrom = true, "created"
		e.Items = func(*postrider.Message) ([]string, error) { return []string{"B", "A"}, nil }
		e.Item = func(m *postrider.Message) (string, error) { return m.Headers["item"], nil }
	})
	item := func(messageType, item string) Input {
		return Input{Event: &postrider.Message{Type: messageType, ID: messageType + item, Headers: map[string]string{"item": item}, Payload: []byte(`{}`)}}
	}
	r := begin(t, c)
	r.input(item("reserved", "A"))
	r.sees("created", "charged", "confirmed").is(Running)
	if got := r.in.State.Waiting(); !slices.Equal(got, []string{"reserved[B]"}) {
		t.Errorf("waits for %q", got)
	}
	r.input(item("reserved", "B"))
	r.is(Completed)

	r = begin(t, c).sees("created")
	r.input(item("reserved", "A"))
	r.sees("unavailable").is(Compensating)
	if got := r.sent(); !slices.Equal(got, []string{"reserved.undo", "reserved.undo"}) {
		t.Fatalf("sent %q, want the undo of both items: %s", got, r.events())
	}
	r.input(item("reserved.undone", "A"))
	r.input(item("reserved.undone", "B"))
	r.undoing("created").is(Compensated)
}

// TestContractGraph: what is read from a graph has the same graph and hash.
func TestContractGraph(t *testing.T) {
	t.Parallel()
	c := shop(t)
	text, err := json.Marshal(c.Graph())
	if err != nil {
		t.Fatal(err)
	}
	read, err := RulesFromGraph(text)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := json.Marshal(read.(*Contract).Graph()); string(again) != string(text) || read.Hash() != c.Hash() {
		t.Errorf("the graph is\n%s\nand was\n%s", again, text)
	}
	in := begin(t, c).sees("created", "reserved", "declined").in
	if picture := read.Mermaid(&in.State); !strings.Contains(picture, `e2["reserved<br>stock<br>undoing"]:::waiting`) {
		t.Error(picture)
	}
}

// TestReopenedHasATimer: the timer of an instance that ended is ignored when it fires, so one that is reopened sets another.
func TestReopenedHasATimer(t *testing.T) {
	t.Parallel()
	r := begin(t, shop(t, func(c *Contract) { c.CancelWithin, c.Events[3].NoUndo = 3*time.Hour, true })).sees("created", "reserved", "charged")
	timer := r.in.State.Timer
	r.sees("confirmed")
	r.age = max(timer.At, time.Hour)
	r.input(Input{Timer: &Fired{ID: timer.ID}})
	if !r.out.Ignored || r.in.State.Ended != Completed {
		t.Fatalf("the timer of an instance that is %s: %+v", r.in.State.Status(), r.out)
	}
	if r.says(VerbCancel, ""); r.in.State.Status() != Compensating || r.out.Timer == nil {
		t.Errorf("after a cancellation it is %s, with the timer %+v; want one for the undos", r.in.State.Status(), r.out.Timer)
	}
}
