package scenariotest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga"
)

// randomSagas: random definitions, whose steps are refused at random. Each instance ends as its refusals say, with the effects of all of
// its steps, or of none. POSTRIDER_SEED repeats the definitions of an earlier run.
func randomSagas[Tx any](w *world[Tx]) {
	seed := rand.Uint64()
	if text := os.Getenv("POSTRIDER_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		w.must(err)
	}
	w.Logf("POSTRIDER_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var refused sync.Map // the step that is refused, by instance
	for _, step := range []string{"reserve", "charge"} {
		w.onDo(step, func(_ Tx, m *postrider.Message) error {
			if which, _ := refused.Load(m.Headers["postrider-saga"]); which == m.Headers["postrider-saga-step"] {
				return saga.Refuse("random", nil)
			}
			return nil
		})
	}
	w.runEngine()
	w.runParticipants()
	left := make(map[string]int)
	for i := range 4 {
		g := &generator[Tx]{world: w, random: random, leaves: make(map[string]string)}
		d := define(g.steps()...)
		d.Name = fmt.Sprint("random-", i)
		s := w.register(d)
		for n := range 3 {
			id, want := fmt.Sprint(i, "/", n), saga.Completed
			if n > 0 { // the first one has no refusal
				refused.Store(id, g.requests[random.IntN(len(g.requests))])
				want = saga.Compensated
			}
			w.start(s, order{ID: id})
			w.signal(id, "early")
			w.ends(s, id, want)
			if want == saga.Completed {
				for path, leaf := range g.leaves {
					left[leaf]++
					w.has(id, "step.done "+path, 1)
				}
			}
		}
	}
	w.ledger(left)
}

// generator makes random steps.
type generator[Tx any] struct {
	*world[Tx]
	random   *rand.Rand
	named    int
	awaits   bool
	leaves   map[string]string // what the steps that run do, by path
	requests []string          // those of them that can be refused
}

func (g *generator[Tx]) steps() (out []step) {
	for range 1 + g.random.IntN(3) {
		out = append(out, g.step("", true))
	}
	return append(out, g.request("", "last"))
}

// step makes a step below a path; one that has steps, if it may.
func (g *generator[Tx]) step(below string, nests bool) step {
	g.named++
	name := fmt.Sprint("s", g.named)
	path := below + name + "/"
	kind := g.random.IntN(6)
	switch {
	case kind == 0 && nests:
		return saga.Parallel[order]{Name: name, Steps: []step{g.step(path, false), g.step(path, false)}}
	case kind == 1 && nests:
		return saga.Choose[order]{Name: name, Cases: []saga.Case[order]{
			{Name: "never", If: func(o order) bool { return o.Method != "" }, Steps: []step{chargeStep()}},
			{Name: "else", Steps: []step{g.step(path+"else/", false)}},
		}}
	case kind == 2 && nests && !g.awaits:
		g.awaits = true
		r := reviewStep(time.Hour)
		r.Name = name
		return r
	case kind == 3:
		l := g.localStep("book", nil)
		l.Name, g.leaves[below+name] = name, "book"
		return l
	}
	return g.request(below, name)
}

func (g *generator[Tx]) request(below, name string) step {
	r, leaf := reserveStep(), "reserve"
	if g.random.IntN(2) == 0 {
		r, leaf = chargeStep(), "charge"
	}
	r.Name, g.leaves[below+name] = name, leaf
	g.requests = append(g.requests, below+name)
	return r
}
