package machine

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider"
)

func (r *run) answers(path string, o Outcome) *run {
	r.Helper()
	r.input(Input{Reply: &Reply{SentAs: path, Token: "token", Outcome: o}})
	return r
}

// TestContractPivotMeetsItsUndo: once the undo of a pivot is requested, the service's answer decides, not the event: otherwise the
// instance completes without its pivot.
func TestContractPivotMeetsItsUndo(t *testing.T) {
	t.Parallel()
	cancelled := func() *run {
		return begin(t, shop(t)).sees("created", "reserved").says(VerbCancel, "").sees("shipped", "charged", "confirmed").is(Compensating)
	}
	cancelled().sees("shipped.undone").undoing("charged", "reserved", "created").is(Compensated)
	r := cancelled().answers("shipped", OutcomeCannotUndo).is(Completed)
	if !r.out.Passed || r.in.State.Cause != nil {
		t.Errorf("after the pivot: %+v", r.in.State)
	}
	r = cancelled()
	for range testPolicy.UndoAttempts {
		r.fires()
	}
	r.is(Stuck).says(VerbDone, "shipped").is(Completed)
	late := begin(t, shop(t)).sees("created", "reserved").says(VerbCancel, "").sees("shipped.undone").sees("shipped")
	if got := late.sent(); !slices.Equal(got, []string{"shipped.undo"}) {
		t.Errorf("a pivot that arrives after its undo: sent %q, want its undo again", got)
	}
	late.is(Compensating)
}

// TestContractObservedPivot: with Observe, nobody was asked for the undos that are awaited, so if the pivot happens meanwhile, the
// instance continues.
func TestContractObservedPivot(t *testing.T) {
	t.Parallel()
	for _, seen := range [][]string{{"created"}, {"created", "reserved", "charged"}} {
		r := begin(t, shop(t, func(c *Contract) { c.Observe = true })).sees(seen...).fires().is(Compensating)
		r.sees("reserved", "charged", "confirmed", "shipped").is(Completed)
		if due := r.in.State.Waiting(); len(due) > 0 || r.in.State.Cause != nil {
			t.Errorf("it completed, and waits for %q because of %+v", due, r.in.State.Cause)
		}
		r = begin(t, shop(t, func(c *Contract) { c.Observe = true })).sees(seen...).fires().fires().is(Stuck) // nobody undid it in time
		r.sees("shipped").sees("reserved", "charged", "confirmed").is(Completed)
	}
	r := begin(t, shop(t, func(c *Contract) { c.Observe = true })).sees("created", "reserved").fires().sees("reserved.undone")
	r.sees("charged", "confirmed", "shipped").is(Stuck) // a service did not wait for the pivot
}

// TestContractSkipMeetsEvent: an event that operators skip and that happens meanwhile is undone before the instance completes.
func TestContractSkipMeetsEvent(t *testing.T) {
	t.Parallel()
	skipped := func() *run {
		r := begin(t, shop(t)).sees("created", "reserved").says(VerbSkip, "charged")
		if got := r.sent(); !slices.Equal(got, []string{"charged.undo"}) {
			t.Fatalf("sent %q", got)
		}
		return r
	}
	skipped().sees("charged", "confirmed").is(Running).sees("charged.undone").is(Completed)
	r := skipped().sees("charged").answers("charged", OutcomeCannotUndo).is(Running)
	if st := r.in.State.Steps["charged"]; st.Status != StepDone || !st.Owed {
		t.Errorf("a skipped event that cannot be undone is %+v, want it done", st)
	}
	r.sees("confirmed").is(Completed)
	late := skipped().sees("charged.undone").sees("charged")
	if got := late.sent(); !slices.Equal(got, []string{"charged.undo"}) {
		t.Errorf("a skipped event that arrives after its undo: sent %q, want its undo again", got)
	}
	late.sees("charged.undone", "confirmed").is(Completed)
}

// TestContractDoneByHandIsUndoneByHand: a service cannot undo what an operator did.
func TestContractDoneByHandIsUndoneByHand(t *testing.T) {
	t.Parallel()
	for _, observe := range []bool{false, true} {
		r := begin(t, shop(t, func(c *Contract) { c.Observe = observe })).sees("created", "reserved").says(VerbDone, "charged")
		r.says(VerbCancel, "").sees("shipped.undone", "charged.undone", "reserved.undone", "created.undone").is(Stuck)
		if !strings.Contains(r.events(), undoByHand) {
			t.Error(r.events())
		}
		r.says(VerbUndone, "charged").is(Compensated)
	}
}

// TestContractWithoutItsStart: a tracker that began in the middle does not turn an instance back because of time.
func TestContractWithoutItsStart(t *testing.T) {
	t.Parallel()
	middle := func() *run {
		return begin(t, shop(t)).sees("reserved", "charged", "confirmed").fires().is(Stuck)
	}
	r := middle()
	if len(r.out.Commands) > 0 || r.in.State.Back || r.out.Timer != nil {
		t.Errorf("without its start, the instance sends %q: %s", r.sent(), r.events())
	}
	middle().sees("created").is(Completed)
	middle().says(VerbComplete, "").is(Completed)
	middle().says(VerbDone, "created").is(Completed)
	middle().says(VerbCompensate, "").is(Compensating)
	middle().says(VerbRetry, "").is(Running).fires().is(Stuck)

	late := begin(t, shop(t)).sees("reserved").fires().is(Stuck).sees("created").is(Running) // its time is over
	late.fires().undoing("shipped", "charged", "reserved", "created").is(Compensated)
}

// TestContractUndonePastThePivot: after a retry, an event that its service undid is waited for again.
func TestContractUndonePastThePivot(t *testing.T) {
	t.Parallel()
	r := begin(t, shop(t)).sees("created", "reserved", "shipped", "reserved.undone").is(Stuck).says(VerbRetry, "").is(Running)
	r.sees("reserved", "charged", "confirmed").is(Completed)
}

// itemised is the shop whose orders have lines: each is reserved by itself.
func itemised(t *testing.T, items ...string) *Contract {
	return shop(t, func(c *Contract) {
		e := c.Events[1]
		e.Each, e.ItemsFrom = true, "created"
		e.Items = func(*postrider.Message) ([]string, error) { return items, nil }
		e.Item = func(m *postrider.Message) (string, error) { return m.Headers["item"], nil }
	})
}

func (r *run) seesItem(messageType, item string) *run {
	r.Helper()
	r.input(Input{Event: &postrider.Message{Type: messageType, ID: messageType + item, Headers: map[string]string{"item": item}, Payload: []byte(`{}`)}})
	return r
}

// TestContractWithoutItems: an event of no items has happened.
func TestContractWithoutItems(t *testing.T) {
	t.Parallel()
	begin(t, itemised(t)).sees("created", "charged", "confirmed").is(Completed)
	begin(t, itemised(t)).sees("created", "declined").undoing("created").is(Compensated)
}

// TestContractItemsKnownLate: an instance is not compensated before it is known what items there are.
func TestContractItemsKnownLate(t *testing.T) {
	t.Parallel()
	c := itemised(t, "A", "B")
	r := begin(t, c).seesItem("reserved", "A").sees("declined").is(Stuck)
	r.seesItem("reserved.undone", "A").sees("created.undone").is(Stuck)
	r.sees("created")
	if got := r.sent(); !slices.Equal(got, []string{"reserved.undo"}) {
		t.Fatalf("sent %q, want the undo of B: %s", got, r.events())
	}
	r.seesItem("reserved.undone", "B").undoing("created").is(Compensated)

	r = begin(t, c).sees("unavailable", "created") // some of the items may have been reserved
	if got := r.sent(); len(got) != 2 {
		t.Errorf("sent %q, want the undos of A and B: %s", got, r.events())
	}
}

// TestContractItemsUnknown: an operator who vouches for an event that was not seen is asked about those whose items it names.
func TestContractItemsUnknown(t *testing.T) {
	t.Parallel()
	missed := func() *run { return begin(t, itemised(t, "A", "B")).seesItem("reserved", "A").fires().is(Stuck) }
	for _, vouched := range []func() *run{
		func() *run { return missed().says(VerbDone, "created") },
		func() *run { return missed().says(VerbSkip, "created").undoing("created") },
	} {
		r := vouched().is(Stuck)
		if got := r.in.State.Waiting(); !slices.Equal(got, []string{"reserved"}) {
			t.Errorf("waits for %q: %s", got, r.events())
		}
		r.says(VerbRetry, "").is(Stuck).says(VerbDone, "reserved").is(Running).sees("charged", "confirmed").is(Completed)
		vouched().says(VerbSkip, "reserved").is(Running).sees("charged", "confirmed").is(Completed)
		vouched().says(VerbComplete, "").is(Completed)
	}
	r := missed().says(VerbDone, "created").sees("created").is(Running)
	if got := r.in.State.Waiting(); !slices.Equal(got, []string{"reserved[B]"}) {
		t.Errorf("once the items are known, it waits for %q", got)
	}
	missed().says(VerbDone, "created").says(VerbSkip, "reserved").sees("created", "charged", "confirmed").is(Completed)
	r = missed().says(VerbDone, "created").says(VerbDone, "reserved").sees("declined").is(Stuck).says(VerbUndone, "reserved")
	r.seesItem("reserved.undone", "A").undoing("created").is(Compensated)
}

// TestContractUnreadableItem: an event whose item cannot be read is for an operator. It is not refused, since other contracts may know it.
func TestContractUnreadableItem(t *testing.T) {
	t.Parallel()
	readable := false
	c := itemised(t, "A", "B")
	c.Events[1].Item = func(m *postrider.Message) (string, error) {
		if item := m.Headers["item"]; item != "?" || readable {
			return strings.Replace(item, "?", "B", 1), nil
		}
		return "", errors.New("it is a number")
	}
	begin(t, c).seesItem("reserved", "?").is(Stuck).sees("created", "charged").seesItem("reserved", "A").says(VerbDone, "reserved").is(Running)

	r := begin(t, c).sees("created").seesItem("reserved", "?").is(Stuck)
	if r.seesItem("reserved", "?"); !r.out.Ignored || !strings.Contains(r.events(), "it is a number") {
		t.Errorf("a duplicate is not ignored: %s", r.events())
	}
	r.says(VerbRetry, "").is(Running).seesItem("reserved", "A")
	readable = true
	r.seesItem("reserved", "?").sees("charged", "confirmed").is(Completed)
	readable = false

	r = begin(t, c).sees("created").seesItem("reserved", "?").says(VerbCompensate, "").undoing("shipped", "charged").is(Stuck).says(VerbUndone, "reserved")
	r.seesItem("reserved.undone", "A").seesItem("reserved.undone", "B").undoing("created").is(Compensated)
	r.seesItem("unavailable", "?").is(Compensated).seesItem("reserved", "?").is(Stuck).says(VerbUndone, "reserved").is(Compensated)

	r = begin(t, c).sees("created").seesItem("reserved", "A").sees("declined").is(Compensating).seesItem("reserved", "?").is(Stuck)
	r.seesItem("reserved.undone", "A").seesItem("reserved.undone", "B").is(Stuck).says(VerbUndone, "reserved").undoing("created").is(Compensated)
}

// TestContractUnreadableItems: so it is if the event cannot be read that names the items. Once it can, it can be replayed.
func TestContractUnreadableItems(t *testing.T) {
	t.Parallel()
	unreadable, c := errors.New("it is a number"), itemised(t)
	c.Events[1].Items = func(*postrider.Message) ([]string, error) { return []string{"A"}, unreadable }
	begin(t, c).sees("created").is(Stuck).says(VerbDone, "reserved").sees("charged", "confirmed").is(Completed)
	begin(t, c).sees("created").says(VerbRetry, "").is(Stuck).says(VerbCompensate, "").undoing("shipped", "charged").says(VerbUndone, "reserved").undoing("created").is(Compensated)
	r := begin(t, c).sees("created").is(Stuck)
	unreadable = nil
	r.sees("created").is(Running).seesItem("reserved", "A").sees("charged", "confirmed").is(Completed)
}

// TestContractUndoContinues: an undo that is stuck at once does not keep back those that do not depend on it.
func TestContractUndoContinues(t *testing.T) {
	t.Parallel()
	c := shop(t, func(c *Contract) {
		weighed := &Expected{Name: "weighed", Service: "parcels", After: [][]string{{"created"}}, Undo: UndoRequest{Type: "weighed.undo"}, Undone: "weighed.undone"}
		c.Events = slices.Insert(c.Events, 3, weighed)
		c.Events[4].After = append(c.Events[4].After, []string{"weighed"})
		c.Events = c.Events[:5]
	})
	r := begin(t, c).sees("created", "reserved").says(VerbDone, "weighed").sees("declined").is(Stuck)
	if got := r.sent(); !slices.Equal(got, []string{"reserved.undo"}) {
		t.Errorf("sent %q, want the undo of reserved: %s", got, r.events())
	}
}

// TestContractWordOfAnOperator: an event is skipped whose undo nobody can confirm. What the operator says again holds.
func TestContractWordOfAnOperator(t *testing.T) {
	t.Parallel()
	expired := func() *run {
		r := begin(t, shop(t)).sees("created").says(VerbSkip, "reserved")
		if r.answers("reserved", OutcomeNoRecord).is(Stuck); r.out.Refused != "" {
			t.Fatal(r.out.Refused)
		}
		return r
	}
	expired().says(VerbSkip, "reserved").is(Running).sees("charged", "confirmed").is(Completed)
	expired().says(VerbDone, "reserved").is(Running).sees("declined").is(Stuck).says(VerbUndone, "reserved").undoing("created").is(Compensated)
	if r := expired().says(VerbRetry, ""); !slices.Equal(r.sent(), []string{"reserved.undo"}) {
		t.Errorf("a retry sends %q, want the undo again", r.sent())
	}
}

// TestContractItemsThatCannotBeHeld: items that the path of a step cannot have are for an operator, like those that cannot be read.
func TestContractItemsThatCannotBeHeld(t *testing.T) {
	t.Parallel()
	for _, item := range []string{"a\x00", "a\xff", strings.Repeat("a", MaxPathBytes)} {
		begin(t, itemised(t, "A", item)).sees("created").is(Stuck).says(VerbDone, "reserved").sees("charged", "confirmed").is(Completed)
		begin(t, itemised(t, "A")).sees("created").seesItem("reserved", item).is(Stuck)
	}
}

// TestStoredContract: tools read a contract that an engine reported before its items had to come from an event that always happens.
func TestStoredContract(t *testing.T) {
	t.Parallel()
	change := func(c *Contract) {
		c.Events[2].After = [][]string{{"created"}}
		c.Events[1].Each, c.Events[1].ItemsFrom, c.Events[1].After = true, "charged", [][]string{{"created", "charged"}}
		c.Events[1].Items = func(*postrider.Message) ([]string, error) { return nil, nil }
		c.Events[1], c.Events[2] = c.Events[2], c.Events[1]
		c.Events[3].After = [][]string{{"reserved"}}
		c.Stored = true
	}
	old := shop(t, change)
	text, err := json.Marshal(old.Graph())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := RulesFromGraph(text); err != nil {
		t.Errorf("the graph of an older build: %v", err)
	}
	old.Stored = false
	if err := old.Complete(); err == nil || !strings.Contains(err.Error(), "need not happen before it") {
		t.Errorf("a new contract like it: %v", err)
	}
}
