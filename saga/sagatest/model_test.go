package sagatest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga"
)

// TestSagaModel: random definitions, each explored with random options. POSTRIDER_TORTURE says for how long, and POSTRIDER_SEED repeats a
// definition of an earlier run.
func TestSagaModel(t *testing.T) {
	t.Parallel()
	t.Run("A48 explored", exploreAtRandom)
}

func exploreAtRandom(t *testing.T) {
	t.Parallel()
	least, limit := time.Second, 3_000
	if text := os.Getenv("POSTRIDER_TORTURE"); text != "" {
		var err error
		if least, err = time.ParseDuration(text); err != nil {
			t.Fatalf("POSTRIDER_TORTURE: %v", err)
		}
		limit = 20_000
	}
	seed := rand.Uint64()
	if text := os.Getenv("POSTRIDER_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("POSTRIDER_SEED: %v", err)
		}
	}
	t.Logf("POSTRIDER_SEED=%d repeats the first definition, one more the next, and so on", seed)
	explored, states := 0, 0
	for began := time.Now(); explored == 0 || time.Since(began) < least; seed++ {
		g := &generator{random: rand.New(rand.NewPCG(seed, 0))}
		d := saga.Definition[order]{Name: "orders", Version: 1, Steps: g.steps(2+g.random.IntN(2), 0)}
		if g.random.IntN(4) == 0 {
			d.Deadline = time.Duration(10+g.random.IntN(100)) * time.Second
		}
		if d.Validate() != nil { // e.g. two pivots on one way
			continue
		}
		found := exploreRandom(t, d, seed, g.random, limit)
		explored, states = explored+1, states+found.States
		if t.Failed() {
			return
		}
	}
	t.Logf("%d definitions, %d states", explored, states)
}

// exploreRandom explores a definition, and prints it with its seed if a promise breaks.
func exploreRandom(t *testing.T, d saga.Definition[order], seed uint64, random *rand.Rand, limit int) Explored {
	t.Helper()
	compiled, err := d.Compile()
	if err != nil {
		t.Fatal(err)
	}
	input, err := json.Marshal(order{ID: "42", Card: random.IntN(2) == 0})
	if err != nil {
		t.Fatal(err)
	}
	e := newExplorer(t, newModel(compiled, policy(2)), input)
	e.limit, e.duplicates, e.cancels, e.verbs = limit, random.IntN(2), random.IntN(2), random.IntN(3)
	e.anyOrder = random.IntN(2) == 0
	found, history := e.explore()
	if history != "" {
		graph, _, _ := d.Graph()
		t.Errorf("POSTRIDER_SEED=%d\n%s\n%s", seed, history, graph)
	}
	return found
}

// generator makes random steps. Names count up, so that none repeats.
type generator struct {
	random *rand.Rand
	named  int
}

func (g *generator) steps(n, depth int) (out []saga.Step[order]) {
	for range n {
		out = append(out, g.step(depth))
	}
	return out
}

func (g *generator) step(depth int) saga.Step[order] {
	g.named++
	name, wait := fmt.Sprint("s", g.named), []time.Duration{time.Hour, saga.NoTimeout}[g.random.IntN(2)]
	switch kind := g.random.IntN(10); {
	case kind < 4:
		return g.request(name, depth)
	case kind < 6:
		l := saga.Local[order, tx]{Name: name, Do: nothing, Undo: nothing, Pivot: depth == 0 && g.random.IntN(6) == 0}
		if g.random.IntN(4) == 0 {
			l.Undo, l.NoUndo = nil, !l.Pivot
		}
		return l
	case kind == 6:
		a := saga.Await[order, reply]{Name: name, Signal: postrider.Define[reply]("signal." + name), Timeout: wait}
		if wait > 0 && g.random.IntN(2) == 0 {
			a.TimedOut = func(*order) {}
		}
		return a
	case kind == 7:
		return saga.Ask[order]{Name: name, Question: func(order) string { return "?" }, Options: []string{"yes", "no"}, Timeout: wait,
			Answered: func(_ *order, a saga.Answer) error {
				if a.Option == "no" {
					return saga.Refuse("no", nil)
				}
				return nil
			}}
	case depth > 0:
		return g.request(name, depth)
	case kind == 8 && g.random.IntN(2) == 0:
		return saga.Each[order, order]{
			Name: name, Items: func(o order) []order { return []order{{ID: "1", Card: o.Card}, {ID: "2"}} }, ID: func(o order) string { return o.ID },
			Steps: g.steps(1, depth+1), Window: g.random.IntN(3),
		}
	case kind == 8:
		return saga.Parallel[order]{Name: name, Steps: g.steps(2, depth+1)}
	default:
		return saga.Choose[order]{Name: name, Cases: []saga.Case[order]{
			{Name: "card", If: func(o order) bool { return o.Card }, Steps: g.steps(1, depth+1)}, {Name: "other", Steps: g.steps(1, depth+1)},
		}}
	}
}

func (g *generator) request(name string, depth int) saga.Request[order, command, reply] {
	step := saga.DefineStep[command, reply]("do." + name).WithTopic([]string{"stock", "cards"}[g.random.IntN(2)])
	if g.random.IntN(4) == 0 {
		step = step.WithoutUndo()
	}
	r := request(name, step)
	r.Pivot, r.Attempts = depth == 0 && g.random.IntN(5) == 0, g.random.IntN(3)
	if g.random.IntN(5) == 0 {
		r.Refused = func(*order, saga.Refusal) {}
	}
	if g.random.IntN(6) == 0 {
		r.OnlyIf = func(o order) bool { return !o.Card }
	}
	if g.random.IntN(2) == 0 {
		r.Timeout = time.Duration(5+g.random.IntN(60)) * time.Second
	}
	return r
}
