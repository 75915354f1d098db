package sagatest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/saga/internal/machine"
	"github.com/postrider/postrider/store"
)

func event(name string) postrider.Definition[order] { return postrider.Define[order](name) }

// expected is an event of a contract with an undo, after others.
func expected(name string, after ...string) saga.Event {
	e := saga.Event{On: event(name), Service: name + " service", Undo: event(name + ".undo").WithTopic(name), Undone: event(name + ".undone")}
	for _, a := range after {
		e.After = append(e.After, event(a))
	}
	e.Start = len(after) == 0
	return e
}

func fails(e saga.Event, with string) saga.Event {
	e.Fails = saga.Defs{event(with)}
	return e
}

// line is a contract: created → reserved → confirmed.
func line(change ...func(c *saga.Contract)) saga.Contract {
	confirmed := saga.Event{On: event("confirmed"), Service: "orders", After: saga.Defs{event("reserved")}, End: true, NoUndo: true}
	c := saga.Contract{Name: "orders", Version: 1, Events: []saga.Event{
		expected("created"), fails(expected("reserved", "created"), "unavailable"), confirmed,
	}}
	for _, f := range change {
		f(&c)
	}
	return c
}

func observed(c *saga.Contract) { c.Compensate = saga.Observe }

func limited(c *saga.Contract) { c.Deadline = time.Minute }

func cancellable(c *saga.Contract) { c.CancelWithin = time.Hour }

// shipped adds a pivot at the end.
func shipped(c *saga.Contract) {
	e := expected("shipped", "confirmed")
	e.Optional, e.Pivot = true, true
	c.Events = append(c.Events, e)
}

// pivotInTheMiddle makes the reservation the pivot.
func pivotInTheMiddle(c *saga.Contract) { c.Events[1].Pivot = true }

// withItems reserves each of several items.
func withItems(c *saga.Contract) {
	one := func(order) string { return "" }
	c.Events[1].Items = saga.ItemsOf(event("created"), func(order) []string { return nil })
	c.Events[1].Item = saga.ItemFuncs{saga.ItemOf(event("reserved"), one), saga.ItemOf(event("reserved.undone"), one)}
}

// alternatives lets stock be ordered instead of reserved; weighed adds a branch parallel to the reservation.
func alternatives(c *saga.Contract) {
	confirmed := c.Events[2]
	confirmed.After = saga.Defs{saga.OneOf(event("reserved"), event("ordered"))}
	c.Events = append(c.Events[:2:2], expected("ordered", "created"), confirmed)
}

func weighed(c *saga.Contract) {
	confirmed := c.Events[2]
	confirmed.After = append(saga.Defs{event("weighed")}, confirmed.After...)
	c.Events = append(c.Events[:2:2], expected("weighed", "created"), confirmed)
}

// TestExploreContract: no order of events, failures, requests, timeouts and decisions breaks a contract.
func TestExploreContract(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		c       saga.Contract
		options []Option
	}{
		"line":                    {line(limited), nil},
		"line, any order":         {line(limited), []Option{AnyOrder(), Cancel(), Duplicates(0)}},
		"line, operators":         {line(limited), []Option{Operators(), Duplicates(0)}},
		"observed":                {line(limited, observed), []Option{Duplicates(0)}},
		"pivot at the end":        {line(shipped), []Option{Cancel(), Duplicates(0)}},
		"pivot in the middle":     {line(limited, pivotInTheMiddle), []Option{Duplicates(0)}},
		"cancelled after its end": {line(cancellable), []Option{Cancel()}},
		"items":                   {line(withItems), []Option{Duplicates(0)}},
		"alternatives":            {line(alternatives), []Option{Cancel(), Duplicates(0)}},
		"branches":                {line(weighed), []Option{Cancel(), Duplicates(0)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			found := ExploreContract(t, tt.c, append(tt.options, Limit(3_000))...)
			t.Logf("%+v, %s", found, time.Since(start))
			if found.Complete && (found.Ends[saga.Completed] == 0 || found.Ends[saga.Compensated] == 0) {
				t.Errorf("it ends %v, want both ways", found.Ends)
			}
		})
	}
}

// contractSeed is a bug of a tracker or of services.
type contractSeed struct {
	c     saga.Contract
	plant func(m *model)
	want  string // in the violation
}

func contractSeeds() map[string]contractSeed {
	return map[string]contractSeed{
		"a timeout proves that nothing happened": {line(limited), func(m *model) {
			after(m, func(before machine.Instance, _ machine.Input, in *machine.Instance, out *machine.Output) {
				if in.State.Back && !before.State.Back {
					for path, st := range in.State.Steps {
						if !st.Seen {
							delete(in.State.Steps, path)
							out.Commands = slices.DeleteFunc(out.Commands, func(c machine.Command) bool { return c.Path == path })
						}
					}
				}
			})
		}, "happened"},
		"an undo blocks nothing": {line(limited), func(m *model) {
			decide := m.decide
			m.decide = func(r store.SagaStepState, undo, undoes, seen, expired bool) machine.Action {
				if action := decide(r, undo, undoes, seen, expired); action != machine.Block {
					return action
				}
				return machine.Undone
			}
		}, "the instance is compensated, and"},
		"the event of a pivot overrules its undo": {line(shipped), func(m *model) {
			after(m, func(before machine.Instance, input machine.Input, in *machine.Instance, _ *machine.Output) {
				if input.Event != nil && input.Event.Type == "shipped" && before.State.Back && in.State.Steps["shipped"].Status == machine.StepUndoing {
					in.State.Back, in.State.Ended, in.State.Steps["shipped"].Status = false, machine.Completed, machine.StepDone
				}
			})
		}, "the instance completed, and shipped is undone"},
	}
}

// TestSeededBugsOfContracts: ExploreContract finds each bug.
func TestSeededBugsOfContracts(t *testing.T) {
	t.Parallel()
	for name, s := range contractSeeds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compiled, err := s.c.Compile()
			if err != nil {
				t.Fatal(err)
			}
			e := newExplorer(t, newContractModel(compiled), nil)
			e.duplicates, e.cancels, e.limit = 0, 1, 20_000
			newServices(e, compiled)
			s.plant(e.model)
			found, history := e.explore()
			t.Logf("%d states\n%s", found.States, history)
			if first, _, _ := strings.Cut(history, "\n"); !strings.Contains(first, s.want) {
				t.Errorf("found %q, want %q", first, s.want)
			}
		})
	}
}
