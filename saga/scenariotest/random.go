package scenariotest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/saga/sagatest"
)

// Model (A48) runs random sagas on a store, and compares how each ends with the reference: the same definition in a script of sagatest. The
// variable POSTRIDER_TORTURE has how long, e.g. "1h", instead of a number of runs. Each run prints its seed, with which POSTRIDER_SEED
// repeats it; how goroutines interleave may differ.
func Model[Tx any](t *testing.T, k Kit[Tx]) {
	t.Run("A48 random sagas", func(t *testing.T) { model(t, k) })
}

func model[Tx any](t *testing.T, k Kit[Tx]) {
	t.Parallel()
	happened := make(map[string]int)
	run := func(seed uint64) {
		play := func(t *testing.T) {
			t.Logf("POSTRIDER_SEED=%d repeats this run", seed)
			randomSagas(newWorld(t, k), rand.New(rand.NewPCG(seed, 0)), happened)
		}
		if k.Bubble {
			synctest.Test(t, play)
			return
		}
		t.Run(fmt.Sprint("seed ", seed), play) // so that its database is closed afterwards
	}
	if text := os.Getenv("POSTRIDER_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("POSTRIDER_SEED: %v", err)
		}
		run(seed)
		return
	}
	if testing.Short() && !k.Bubble {
		t.Skip("left out by -short, except in virtual time")
	}
	more := func(n int) bool { return n < 2 || k.Bubble && n < 4 }
	if text := os.Getenv("POSTRIDER_TORTURE"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("POSTRIDER_TORTURE: %v", err)
		}
		end := time.Now().Add(d)
		more = func(int) bool { return time.Now().Before(end) }
	}
	n := 0
	for ; more(n) && !t.Failed(); n++ {
		run(rand.Uint64())
	}
	t.Logf("%d runs: %v", n, happened)
}

// randomSagas: random definitions, of which instances run at the same time. Each has a fate: steps are refused, attempts of steps fail,
// commands come again, somebody pauses or cancels it; and in half of the runs commits fail, before or after they happen. Each instance ends as the reference
// says, with the effects of all the steps that it did, or of none. It counts what happened.
func randomSagas[Tx any](w *world[Tx], random *rand.Rand, happened map[string]int) {
	f := w.failCommits()
	f.off = random.IntN(2) == 0
	fates := &fates[Tx]{of: make(map[string]*fate[Tx])}
	participant := w.newParticipant(f, w.box)
	fates.handle(w, participant)
	var all []*fate[Tx]
	for i := range 3 {
		g := &generator[Tx]{world: w, fates: fates, random: random}
		d := define(g.steps()...)
		d.Name = fmt.Sprint("random-", i)
		s := w.register(d)
		for n := range 4 {
			f := g.fate(order{ID: fmt.Sprint(i, "/", n), Method: []string{"", "card"}[random.IntN(2)]})
			f.saga, f.want = s, g.reference(d, f)
			all, fates.of[f.order.ID] = append(all, f), f
		}
	}
	w.run("ledger", []string{"effects", "announcements"}, w.count)
	f.run(w, "engine", []string{w.engine.Topic()}, w.engine.Relay)
	f.run(w, "participants", participantTopics, participant.Relay)
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, fate := range all {
		w.start(fate.saga, fate.order)
	}
	for _, fate := range all {
		w.signal(fate.order.ID, "early")
		for _, verb := range fate.verbs {
			w.operate(fate.order.ID, saga.Operation{Verb: verb})
		}
	}
	left := make(map[string]int)
	for _, fate := range all {
		r := w.endsAs(fate)
		happened[string(r.Status)]++
		for path, did := range r.Data.Did {
			if step, _, effect := strings.Cut(did, " of "); effect && r.Status == saga.Completed {
				left[step]++
				w.has(r.ID, "step.done "+path, 1)
			}
		}
	}
	w.ledger(left)
	for _, times := range f.hits {
		happened["commit failed"] += times
	}
}

// fate is what happens to an instance, and how it ends because of that.
type fate[Tx any] struct {
	saga    *saga.Saga[Tx, order]
	order   order
	refused map[string]bool // by what a step does
	fails   map[string]int  // how many attempts fail before one does not, by what a step does
	copies  map[string]int  // how often a command comes again, by what its step does
	verbs   []saga.Verb
	want    saga.Result[order]
}

// reference runs an instance in a script.
func (g *generator[Tx]) reference(d saga.Definition[order], f *fate[Tx]) saga.Result[order] {
	s := sagatest.New(g.T, d)
	for _, r := range randomSteps {
		if f.refused[r.Type()] {
			s.Refuse(r, "random")
		} else {
			sagatest.Answer(s, r, item{r.Type() + " of " + f.order.ID})
		}
	}
	for _, path := range g.locals {
		s.Local(path, func(o *order) error {
			if f.refused[path] {
				return saga.Refuse("random", nil)
			}
			o.did(path, path+" of "+o.ID)
			return nil
		}, nil)
	}
	sagatest.Signal(s, 0, reviewed, item{"early"})
	return s.Run(f.order)
}

// endsAs waits for the end of an instance and compares it with the reference.
func (w *world[Tx]) endsAs(f *fate[Tx]) saga.Result[order] {
	w.Helper()
	id, want := f.order.ID, f.want
	r := w.becomes(f.saga, id, "its end", func(r saga.Result[order]) bool {
		return r.Status == saga.Completed || r.Status == saga.Compensated
	})
	switch cancels := slices.Contains(f.verbs, saga.Cancel); {
	case cancels && r.Status == saga.Compensated && r.Cause.Kind == saga.CauseCancelled: // if it is too late for that, it ends as without
	case r.Status != want.Status, kindOf(r.Cause) != kindOf(want.Cause):
		w.Errorf("instance %s ended %s (%+v), the reference %s (%+v); history:\n%s", id, r.Status, r.Cause, want.Status, want.Cause, w.historyText(id))
	case r.Status == saga.Completed && !reflect.DeepEqual(r.Data, want.Data):
		w.Errorf("instance %s ended with the data %+v, the reference with %+v; history:\n%s", id, r.Data, want.Data, w.historyText(id))
	}
	return r
}

func kindOf(c *saga.Cause) string {
	if c == nil {
		return ""
	}
	return string(c.Kind)
}
