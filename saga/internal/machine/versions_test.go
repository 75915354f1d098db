package machine

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/store"
)

// TestSagaMigrations: random definitions, each with a changed one, and random positions of an instance in the first. What Classify says of a
// build is what happens if the instance really continues with what the build has: it continues as before, or it waits; it can be migrated,
// and then ends whole; or something that it has done stays if it turns back. POSTRIDER_TORTURE says for how long, and POSTRIDER_SEED repeats a
// pair.
func TestSagaMigrations(t *testing.T) {
	t.Parallel()
	t.Run("A35 random pairs", pairsAtRandom)
}

func pairsAtRandom(t *testing.T) {
	t.Parallel()
	seed, pairs, more := uint64(0), 0, func(n int) bool { return n < 2000 }
	if text := os.Getenv("POSTRIDER_TORTURE"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("POSTRIDER_TORTURE: %v", err)
		}
		end := time.Now().Add(d)
		seed, more = rand.Uint64(), func(int) bool { return time.Now().Before(end) }
	}
	if text := os.Getenv("POSTRIDER_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("POSTRIDER_SEED: %v", err)
		}
		more = func(n int) bool { return n < 1 }
	}
	found := make(map[string]int)
	for ; more(pairs) && !t.Failed(); seed, pairs = seed+1, pairs+1 {
		(&pair{T: t, seed: seed, random: rand.New(rand.NewPCG(seed, 35)), found: found}).compare()
	}
	t.Logf("%d pairs: %v", pairs, found)
	for _, what := range []string{
		string(ClassSame), string(ClassPolicy), string(ClassPinned), string(ClassStops), string(ClassUnsafe), "migrated", "refused",
		"completed", "compensated", "back", "past the pivot", "stuck",
	} {
		if pairs >= 2000 && found[what] < 200 {
			t.Errorf("%s was found %d times, want many", what, found[what])
		}
	}
}

// pair is a definition, and what a build has instead.
type pair struct {
	*testing.T
	seed   uint64
	random *rand.Rand
	found  map[string]int
	shaper
	policy Policy
	was    []*shape
	old    *Definition
	build  []*Definition
	graphs []Rules // of the build, as tools read them
}

func (p *pair) oneIn(n int) bool { return p.random.IntN(n) == 0 }

func (p *pair) failf(format string, args ...any) {
	p.Helper()
	p.Fatalf("POSTRIDER_SEED=%d: %s\nthe instance's version: %s\nthe build: %s", p.seed, fmt.Sprintf(format, args...), graphText(p.old), graphText(p.build...))
}

func graphText(all ...*Definition) (text string) {
	for _, d := range all {
		graph, _ := json.Marshal(d.Graph())
		text += "\n  " + string(graph)
	}
	return text
}

// compare makes a pair, and lets an instance reach states of the first definition. At each, it compares.
func (p *pair) compare() {
	p.Helper()
	p.shaper.random, p.policy = p.random, testPolicy
	p.policy.UndoAttempts = 1 + p.random.IntN(3)
	p.was, p.old = p.valid(1, func() []*shape { return p.shapes(2+p.random.IntN(3), 0) })
	p.makeBuild()
	data := fmt.Sprintf(`{"card":%t}`, p.oneIn(2))
	j := &journey{pair: p, d: p.old, records: make(map[string]store.SagaStepState), effects: make(map[string]int), by: make(map[string]string)}
	j.in = Instance{ID: "42", Run: "run", Data: json.RawMessage(data), State: State{Token: "token"}}
	j.tell(Input{Start: &Start{}})
	for n := 0; n < 12 && j.in.State.Ended == ""; n++ {
		if p.oneIn(2) {
			p.at(j)
		}
		j.move()
	}
}

// valid makes shapes until they are those of a valid definition, which it returns.
func (p *pair) valid(version int, make func() []*shape) ([]*shape, *Definition) {
	for {
		shapes := make()
		d := untyped(stepsOf(shapes)...)
		d.Version = version
		if d.Complete() == nil {
			return shapes, d
		}
	}
}

// makeBuild makes what the build has: the version of the instance, one with another policy or structure, a newer one, several of them, or none.
func (p *pair) makeBuild() {
	add := func(version int, make func() []*shape) {
		_, d := p.valid(version, make)
		p.build = append(p.build, d)
	}
	if p.oneIn(3) {
		add(1, func() []*shape { return copied(p.was) })
		if p.oneIn(2) {
			for _, s := range p.build[0].order {
				s.Timeout *= 2
			}
		}
	} else if p.oneIn(6) {
		add(1, func() []*shape { return p.changed(p.was) })
	}
	for version := range p.random.IntN(3) {
		add(version+2, func() []*shape { return p.changed(p.was) })
	}
	for _, d := range p.build {
		text, err := json.Marshal(d.Graph())
		if err != nil {
			p.Fatal(err)
		}
		r, err := RulesFromGraph(text)
		if err != nil {
			p.Fatal(err)
		}
		p.graphs = append(p.graphs, r)
	}
}

// newest is the newest version of the build, nil if it has none.
func (p *pair) newest() *Definition {
	if len(p.build) == 0 {
		return nil
	}
	return p.build[len(p.build)-1]
}

// at compares what Classify says with what happens, for an instance as it is.
func (p *pair) at(j *journey) {
	p.Helper()
	s := &j.in.State
	class, why := Classify(p.old, s, p.graphs)
	p.found[string(class)]++
	p.found[string(s.Status())]++
	if s.Back {
		p.found["back"]++
	}
	if p.old.For(s).passed(s) {
		p.found["past the pivot"]++
	}
	var own *Definition // what continues the instance
	for _, d := range p.build {
		if d.Version == p.old.Version && d.Hash() == p.old.Hash() {
			own = d
		}
	}
	waits := class == ClassStops || class == ClassUnsafe
	if waits != (own == nil) {
		p.failf("class %q (%s), and the build has the instance's definition: %t", class, why, own != nil)
	}
	newest := p.newest()
	if own != nil {
		want := ClassSame
		switch {
		case newest != own:
			want = ClassPinned
		case !reflect.DeepEqual(own.Graph(), p.old.Graph()):
			want = ClassPolicy
		}
		if class != want {
			p.failf("class %q (%s), want %q", class, why, want)
		}
		j.clone().ends(own)
		return
	}
	if newest == nil {
		return
	}
	if lost := p.lost(j, newest); (lost != "") != (class == ClassUnsafe) {
		p.failf("class %q (%s), and with the newest version, this stays that its own version undoes: %q; the state is %s", class, why, lost, stateText(s))
	}
	can := strings.Contains(why, "can migrate")
	if p.build[0].Version == p.old.Version { // such a build does not start: ErrRedefined
		if can || class == ClassStops && !strings.Contains(why, "another structure") {
			p.failf("class %q (%s) for a version of another structure", class, why)
		}
		return
	}
	p.migrates(j, newest, can)
}

// lost is a step that the instance's own version undoes and another does not, "" if there is none: each goes on with the instance and turns it back,
// while everything may have happened that is not known to have not.
func (p *pair) lost(j *journey, by *Definition) string {
	own, other := j.clone().leftBy(p.old), j.clone().leftBy(by)
	for _, path := range j.in.State.Owed() {
		if other[path] && !own[path] {
			return path
		}
	}
	return ""
}

// migrates lets an instance continue with another version, if that is not refused, and end.
func (p *pair) migrates(j *journey, to *Definition, can bool) {
	p.Helper()
	j = j.clone()
	text, err := json.Marshal(p.old.Graph())
	if err != nil {
		p.Fatal(err)
	}
	from := p.old
	if p.oneIn(2) { // as a process has reported it
		if from, err = FromGraph(text); err != nil {
			p.Fatal(err)
		}
	}
	in, out, err := to.Advance(p.policy, j.in, migrating(from, to.Version))
	if err != nil || can != (out.Refused == "") {
		p.failf("migrate is refused: %q (%v), and diff says that it can: %t; the state is %s", out.Refused, err, can, stateText(&j.in.State))
	}
	if out.Refused != "" {
		p.found["refused"]++
		return
	}
	p.found["migrated"]++
	j.d, j.in, j.flight = to, in, append(j.flight, out.Commands...)
	j.ends(to)
}

func stateText(s *State) string {
	text, _ := json.Marshal(s)
	return string(text)
}
