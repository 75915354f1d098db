package sagatest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/saga/internal/machine"
	"github.com/postrider/postrider/store"
)

// seed is a bug: it breaks the model, and Explore says what is wrong.
type seed struct {
	steps []saga.Step[order]
	plant func(m *model)
	want  string // in the violation
	moves int    // of the shortest history
	// anyOrder: it takes a broker that keeps no order.
	anyOrder bool
}

// before wraps Advance by a change of its arguments.
func before(m *model, change func(in *machine.Instance, input *machine.Input)) {
	advance := m.advance
	m.advance = func(p machine.Policy, in machine.Instance, input machine.Input) (machine.Instance, machine.Output, error) {
		changed := copied(in)
		change(&changed, &input)
		return advance(p, changed, input)
	}
}

// after wraps Advance by a change of its results.
func after(m *model, change func(before machine.Instance, input machine.Input, in *machine.Instance, out *machine.Output)) {
	advance := m.advance
	m.advance = func(p machine.Policy, in machine.Instance, input machine.Input) (machine.Instance, machine.Output, error) {
		next, out, err := advance(p, in, input)
		change(in, input, &next, &out)
		return next, out, err
	}
}

// copied returns an instance that shares nothing with another.
func copied(in machine.Instance) machine.Instance {
	text, err := json.Marshal(in)
	if err != nil {
		panic(err)
	}
	var c machine.Instance
	if err := json.Unmarshal(text, &c); err != nil {
		panic(err)
	}
	c.State.Token = in.State.Token
	return c
}

// timeoutIsRefusal makes the timeout of a request, or only that of the pivot, a refusal.
func timeoutIsRefusal(m *model, pivotOnly bool) {
	before(m, func(in *machine.Instance, input *machine.Input) {
		if input.Timer == nil {
			return
		}
		for _, s := range m.d.All() {
			st := in.State.Steps[s.Path]
			if st != nil && st.Status == machine.StepWaiting && st.Due <= input.Age && s.Kind == machine.Request && (s.Pivot || !pivotOnly) {
				*input = machine.Input{Age: input.Age, Reply: &machine.Reply{SentAs: st.SentAs, Token: in.State.Token, Outcome: machine.OutcomeRefused}}
				return
			}
		}
	})
}

// size: the twelve seeded bugs, each with its definition.
func seeds() map[string]seed {
	reserveStep, chargeStep, shipStep := request("reserve", reserve), request("charge", charge), pivot(request("ship", ship))
	both := saga.Parallel[order]{Name: "both", Steps: []saga.Step[order]{reserveStep, chargeStep}}
	slow, quick := request("reserve", reserve), request("charge", charge)
	slow.Timeout, quick.Timeout = time.Hour, 10*time.Second
	review := saga.Await[order, reply]{Name: "review", Signal: reviewed, Timeout: 3 * time.Hour}
	omit := request("reserve", reserve)
	omit.Done = func(o *order, _ reply) { o.Card = !o.Card }
	return map[string]seed{
		"time-out treated as refusal": {
			steps: []saga.Step[order]{reserveStep}, want: "compensated, and the effect of step reserve happened 1 times", moves: 3,
			plant: func(m *model) { timeoutIsRefusal(m, false) },
		},
		"undo list copied before the late step is added": {
			steps: []saga.Step[order]{both}, want: "compensated, and the effect of step", moves: 4,
			plant: func(m *model) {
				before(m, func(in *machine.Instance, input *machine.Input) {
					if input.Reply == nil || input.Reply.Outcome != machine.OutcomeRefused {
						return
					}
					for _, st := range in.State.Steps {
						if st.SentAs != "" && st.SentAs != input.Reply.SentAs && st.Status == machine.StepWaiting {
							st.Status, st.Owed = machine.StepSkipped, false
						}
					}
				})
			},
		},
		"last step completes though an earlier one failed": {
			steps: []saga.Step[order]{both}, want: "completed, and the effect of step", moves: 5,
			plant: func(m *model) {
				before(m, func(_ *machine.Instance, input *machine.Input) {
					if r := input.Reply; r != nil && r.Outcome == machine.OutcomeRefused {
						c := *r
						c.Outcome, c.Payload = machine.OutcomeDone, []byte("{}")
						input.Reply = &c
					}
				})
			},
		},
		"compensated step not idempotent": {
			steps: []saga.Step[order]{reserveStep, chargeStep}, want: "undone 2 times", moves: 5,
			plant: func(m *model) {
				decide := m.decide
				m.decide = func(r store.SagaStepState, undo, undoes, seen, expired bool) machine.Action {
					if undo && r == store.SagaStepUndone {
						return machine.RunUndo
					}
					return decide(r, undo, undoes, seen, expired)
				}
			},
		},
		"late reply moves a compensated instance back to running": {
			steps: []saga.Step[order]{reserveStep}, want: "had ended compensated and went on", moves: 4,
			plant: func(m *model) {
				after(m, func(before machine.Instance, input machine.Input, in *machine.Instance, _ *machine.Output) {
					if before.State.Ended == machine.Compensated && input.Reply != nil {
						in.State.Ended, in.State.Back = "", false
					}
				})
			},
		},
		"undo sent without a bar": {
			steps: []saga.Step[order]{reserveStep}, want: "compensated, and the effect of step reserve happened 1 times", moves: 5, anyOrder: true,
			plant: func(m *model) {
				decide := m.decide
				m.decide = func(r store.SagaStepState, undo, undoes, seen, expired bool) machine.Action {
					if action := decide(r, undo, undoes, seen, expired); action != machine.Block {
						return action
					}
					return machine.Undone
				}
			},
		},
		"parallel branch left waiting": {
			steps: []saga.Step[order]{both}, want: "waits for nothing", moves: 5,
			plant: func(m *model) {
				after(m, func(before machine.Instance, _ machine.Input, in *machine.Instance, out *machine.Output) {
					out.Commands = slices.DeleteFunc(out.Commands, func(c machine.Command) bool { return c.Undo && !c.Seen })
					for path, st := range in.State.Steps {
						if st.Status == machine.StepUndoing && !st.Seen {
							in.State.Steps[path].Due = 0
						}
					}
					if in.State.Back && !before.State.Back {
						out.Timer, in.State.Timer.At = nil, 0
					}
				})
			},
		},
		"timer id not compared": {
			steps: []saga.Step[order]{slow, quick, review}, want: "step review timed out before its time", moves: 6,
			plant: func(m *model) {
				before(m, func(in *machine.Instance, input *machine.Input) {
					if input.Timer == nil {
						return
					}
					input.Timer = &machine.Fired{ID: in.State.Timer.ID}
					for _, st := range in.State.Steps { // what fires is taken for what is waited for
						input.Age = max(input.Age, st.Due)
					}
				})
			},
		},
		"pivot time-out guessed as failure": {
			steps: []saga.Step[order]{shipStep}, want: "compensated, and the effect of step ship happened 1 times", moves: 3,
			plant: func(m *model) { timeoutIsRefusal(m, true) },
		},
		"branch evaluated again after a retry": {
			steps: []saga.Step[order]{saga.Choose[order]{Name: "pay", Cases: []saga.Case[order]{
				{Name: "card", If: func(o order) bool { return o.Card }, Steps: []saga.Step[order]{omit, chargeStep}},
				{Name: "account", Steps: []saga.Step[order]{local("debit")}},
			}}}, want: `chose case "card" and then "account"`, moves: 3,
			plant: func(m *model) {
				before(m, func(in *machine.Instance, _ *machine.Input) { delete(in.State.Steps, "pay") })
			},
		},
		"two starts, two instances": {
			steps: []saga.Step[order]{reserveStep}, want: "happened 2 times", moves: 6,
			plant: func(m *model) { m.exists = func(bool) bool { return false } },
		},
		"signal lost when early": {
			steps: []saga.Step[order]{local("book"), saga.Await[order, reply]{Name: "review", Signal: reviewed, Timeout: saga.NoTimeout}},
			want:  "waits for nothing", moves: 4,
			plant: func(m *model) {
				after(m, func(_ machine.Instance, _ machine.Input, in *machine.Instance, _ *machine.Output) {
					in.State.Signals = nil
				})
			},
		},
	}
}

// enoughStates is how many states Explore may see before it finds a seeded bug. It sees about 10,000 in a second of an idle core.
const enoughStates = 300

// TestSeededBugs: Explore finds each bug after few states, and shows the shortest history that leads to it.
func TestSeededBugs(t *testing.T) {
	t.Parallel()
	for name, s := range seeds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := saga.Definition[order]{Name: "orders", Version: 1, Steps: s.steps}.Compile()
			if err != nil {
				t.Fatal(err)
			}
			input, err := json.Marshal(order{ID: "42", Card: true})
			if err != nil {
				t.Fatal(err)
			}
			e := newExplorer(t, newModel(d, policy(2)), input)
			e.anyOrder = s.anyOrder
			s.plant(e.model)
			start := time.Now()
			_, history := e.explore()
			t.Logf("%d states, %s\n%s", len(e.nodes), time.Since(start), history)
			if len(e.nodes) > enoughStates {
				t.Errorf("it was found after %d states, want at most %d", len(e.nodes), enoughStates)
			}
			first, rest, _ := strings.Cut(history, "\n")
			if !strings.Contains(first, s.want) {
				t.Errorf("found %q, want %q", first, s.want)
			}
			if want := fmt.Sprintf("the shortest history, %d moves:", s.moves); !strings.HasPrefix(rest, want) {
				t.Errorf("the history begins with %.40q, want %q", rest, want)
			}
		})
	}
}
