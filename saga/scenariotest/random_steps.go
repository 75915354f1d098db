package scenariotest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga"
)

// randomSteps are the steps of the participant of random sagas. A definition has each of them at most once.
var randomSteps = func() (all []saga.StepDefinition[item, item]) {
	for i := range 12 {
		all = append(all, saga.DefineStep[item, item](fmt.Sprint("random.", i)).WithTopic(participantTopics[i%len(participantTopics)]))
	}
	return all
}()

// refusedAndContinued is what a refused step leaves in the data if the saga continues.
const refusedAndContinued = "refused"

// did records what a step did.
func (o *order) did(path, what string) {
	if o.Did == nil {
		o.Did = make(map[string]string)
	}
	o.Did[path] = what
}

// fates are those of the instances of random sagas, by ID.
type fates[Tx any] struct {
	mu sync.Mutex
	of map[string]*fate[Tx]
}

// meet says what becomes of an attempt of a step.
func (f *fates[Tx]) meet(id, step string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch fate := f.of[id]; {
	case fate.fails[step] > 0:
		fate.fails[step]--
		return errors.New("random")
	case fate.refused[step]:
		return saga.Refuse("random", nil)
	}
	return nil
}

// again says whether the command of a step that is done comes again.
func (f *fates[Tx]) again(id, step string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.of[id].copies[step]
	f.of[id].copies[step] = max(n-1, 0)
	return n > 0
}

// handle registers the random steps at a participant.
func (f *fates[Tx]) handle(w *world[Tx], p *saga.Participant[Tx]) {
	for _, r := range randomSteps {
		w.onDo(r.Type(), func(tx Tx, m *postrider.Message) error {
			id := m.Headers["postrider-saga"]
			if err := f.meet(id, r.Type()); err != nil || !f.again(id, r.Type()) {
				return err
			}
			again := *m
			again.ID = ""
			_, err := w.box.Publish(w.Context(), tx, &again)
			return err
		})
		w.must(saga.Handle(p, r, w.doer(w.box, r.Type()), w.undoer(w.box, r.Type())))
	}
}

// generator makes random definitions. What a step does is named by its type, or its path if it is local.
type generator[Tx any] struct {
	*world[Tx]
	fates    *fates[Tx]
	random   *rand.Rand
	named    int
	awaits   bool
	pivoted  bool
	requests int
	locals   []string
	does     []string // what the steps do; the first ones, before the pivot, can be refused
	turning  int      // how many those are
}

func (g *generator[Tx]) oneIn(n int) bool { return g.random.IntN(n) == 0 }

func (g *generator[Tx]) steps() (out []step) {
	for range 1 + g.random.IntN(3) {
		out = append(out, g.step("", true))
	}
	if g.oneIn(2) {
		r := g.request("", "pivot")
		r.OnlyIf, r.Refused, r.Pivot = nil, nil, true
		out, g.pivoted = append(out, r), true
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
			{Name: "card", If: func(o order) bool { return o.Method != "" }, Steps: []step{g.step(path+"card/", false)}},
			{Name: "else", Steps: []step{g.step(path+"else/", false)}},
		}}
	case kind == 2 && nests && !g.awaits:
		g.awaits = true
		r := reviewStep(time.Hour)
		r.Name = name
		return r
	case kind == 3:
		return g.local(below+name, name)
	}
	return g.request(below, name)
}

func (g *generator[Tx]) local(path, name string) step {
	g.locals = append(g.locals, path)
	g.note(path)
	l := g.localStep(path, nil)
	l.Name = name
	l.Do = func(ctx context.Context, tx Tx, o *order) error {
		o.did(path, path+" of "+o.ID)
		if err := effect(ctx, tx, g.box, "do", path); err != nil { // also if it fails: then it must be rolled back
			return err
		}
		return g.fates.meet(o.ID, path)
	}
	return l
}

func (g *generator[Tx]) request(below, name string) saga.Request[order, item, item] {
	path, does := below+name, randomSteps[g.requests]
	g.requests++
	g.note(does.Type())
	r := saga.Request[order, item, item]{
		Name: name, Step: does, Command: asItem, Done: func(o *order, r item) { o.did(path, r.ID) },
	}
	if g.oneIn(6) {
		r.OnlyIf = func(o order) bool { return o.Method == "" }
	}
	if g.oneIn(6) {
		r.Refused = func(o *order, _ saga.Refusal) { o.did(path, refusedAndContinued) }
	}
	return r
}

// note notes a step. After the pivot, a saga does not turn back.
func (g *generator[Tx]) note(does string) {
	g.does = append(g.does, does)
	if !g.pivoted {
		g.turning = len(g.does)
	}
}

// fate draws the fate of an instance of the definition that was made last.
func (g *generator[Tx]) fate(o order) *fate[Tx] {
	f := &fate[Tx]{order: o, refused: make(map[string]bool), fails: make(map[string]int), copies: make(map[string]int)}
	for range g.random.IntN(3) {
		f.refused[g.does[g.random.IntN(g.turning)]] = true
	}
	for range g.random.IntN(3) {
		f.fails[g.does[g.random.IntN(len(g.does))]] = 1 + g.random.IntN(2)
	}
	for range g.random.IntN(3) {
		f.copies[g.does[g.random.IntN(len(g.does))]] = 1 + g.random.IntN(2)
	}
	switch g.random.IntN(4) {
	case 0:
		f.verbs = []saga.Verb{saga.Pause, saga.Resume}
	case 1:
		f.verbs = []saga.Verb{saga.Cancel}
	}
	return f
}
