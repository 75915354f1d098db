package sagatest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/saga/internal/machine"
)

// Explored says what Explore has seen.
type Explored struct {
	// States is the number of different states, Moves that of the ways between them.
	States, Moves int
	// Ends counts the states by status of the instance, of those that have ended or are stuck.
	Ends map[saga.Status]int
	// Complete: all reachable states were seen.
	Complete bool
}

// Option changes what Explore explores.
type Option func(*explorer)

// Duplicates sets how many messages are delivered twice in a history. Default: 1.
func Duplicates(n int) Option { return func(e *explorer) { e.duplicates = n } }

// AnyOrder delivers messages in any order, as brokers do that keep none. Default: in order for each way. The engine's messages to
// itself are always in order.
func AnyOrder() Option { return func(e *explorer) { e.anyOrder = true } }

// Cancel lets the owner cancel the instance once, at any moment.
func Cancel() Option { return func(e *explorer) { e.cancels = 1 } }

// Operators lets an operator intervene once, at any moment: retry what is stuck, skip a step, compensate, or pause. A paused
// instance is resumed at any later moment.
func Operators() Option { return func(e *explorer) { e.verbs = 1 } }

// AsChild explores the saga as one that a saga.Child starts: its parent may want it undone once, at any moment, also after its end.
func AsChild() Option { return func(e *explorer) { e.model.child = true } }

// Limit sets how many states are explored. Default: 2,000,000.
func Limit(states int) Option { return func(e *explorer) { e.limit = states } }

// ReplyWith sets the payload of a step's reply, or of the signal of an Await, by the step's path. Default: the zero value of its
// type.
func ReplyWith(path string, value any) Option {
	return func(e *explorer) {
		payload, err := json.Marshal(value)
		if err != nil {
			e.t.Fatalf("encode the reply of step %s: %v", path, err)
		}
		e.payloads[path] = payload
	}
}

// Explore explores all reachable states of a saga that starts with data, together with the records of its participants and
// the messages in flight, breadth first. In each state, every message that may be next is delivered, once or twice, and
// answered in each possible way; or time passes until the timer, as if nothing were delivered. A crash is no move of its own,
// since a transaction happens as a whole or not at all: afterwards the message is delivered, or delivered twice.
//
// It fails t with the shortest history that breaks one of these rules:
//
//   - A step happens at most once, and is undone at most once, after it happened.
//   - A completed instance has every step done, except those that were skipped or refused. A compensated one has none, except
//     those that need no undo.
//   - An ended instance stays so and sends nothing.
//   - An instance always waits for something, and from every state it can end or become stuck.
//   - The case of a Choose is chosen once. A step does not time out before its time. A deadline before the pivot turns the
//     instance back.
//   - Transitions depend on nothing but the instance and the input.
//
// Local steps run without their functions, since there is no database: they are done without changing the data, refused, or
// they fail. Undos and local steps are tried twice.
func Explore[D any](t testing.TB, d saga.Definition[D], data D, options ...Option) Explored {
	t.Helper()
	compiled, err := d.Compile()
	if err != nil {
		t.Fatal(err)
	}
	input, err := compiled.Encode(&data)
	if err != nil {
		t.Fatal(err)
	}
	e := newExplorer(t, newModel(compiled, policy(2)), input)
	for _, o := range options {
		o(e)
	}
	return e.report()
}

// report explores, and fails the test with the shortest history that breaks a rule.
func (e *explorer) report() Explored {
	e.t.Helper()
	found, history := e.explore()
	if history != "" {
		e.t.Error(history)
	} else if !found.Complete {
		e.t.Logf("sagatest: stopped after %d states; there are more, see Limit", found.States)
	}
	return found
}

// policy is the engine's default, with fewer attempts.
func policy(attempts int) machine.Policy {
	return machine.Policy{
		StepTimeout: 30 * time.Second, UndoTimeout: 30 * time.Second, UndoAttempts: attempts, LocalAttempts: attempts,
		StuckAfter: time.Minute, BackoffBase: time.Second, BackoffMax: 5 * time.Minute, MaxSignals: 64,
	}
}

type explorer struct {
	t          testing.TB
	model      *model
	data       json.RawMessage
	duplicates int
	anyOrder   bool
	cancels    int
	verbs      int
	limit      int
	payloads   map[string][]byte
	items      []string

	next  func(w *world) []move // what can happen in a state
	check func(w *world) string // what is wrong with a state
	seen  map[[sha256.Size224]byte]int32
	nodes []node
	edges [][2]int32
	goals []int32
}

// node is a state: how it was first reached.
type node struct {
	parent int32
	move   int16
}

func newExplorer(t testing.TB, m *model, data json.RawMessage) *explorer {
	e := &explorer{
		t: t, model: m, data: data, duplicates: 1, limit: 2_000_000, payloads: make(map[string][]byte), items: []string{"1", "2"},
		seen: make(map[[sha256.Size224]byte]int32),
	}
	e.next, e.check = e.moves, func(w *world) string { return w.check(m) }
	return e
}

// explore returns what it has seen, and the shortest history that breaks a rule, "" if there is none.
func (e *explorer) explore() (Explored, string) {
	found := Explored{Ends: make(map[saga.Status]int), Complete: true}
	first := newWorld()
	e.visit(first, -1, 0)
	for at, frontier := int32(0), []*world{first}; len(frontier) > 0; at++ {
		w := frontier[0]
		frontier[0] = nil
		frontier = frontier[1:]
		for i, m := range e.next(w) {
			next := w.clone()
			err := attempt(func() error { return m.make(next) })
			found.Moves++
			to, fresh := e.visit(next, at, int16(i))
			if err != nil {
				return found, e.history(at, i, err.Error())
			}
			e.edges = append(e.edges, [2]int32{at, to})
			if !fresh {
				continue
			}
			if again := w.clone(); m.make(again) != nil || !bytes.Equal(again.fingerprint(), next.fingerprint()) {
				return found, e.history(at, i, "the same transition had two results: a function of the definition is not pure")
			}
			if broken := e.check(next); broken != "" {
				return found, e.history(at, i, broken)
			}
			if status := next.inst.State.Status(); next.inst.State.Ended != "" || status == machine.Stuck {
				e.goals = append(e.goals, to)
				found.Ends[status]++
			}
			frontier = append(frontier, next)
		}
		found.States = len(e.nodes)
		if len(e.nodes) >= e.limit {
			found.Complete = false
			return found, ""
		}
	}
	if lost := e.endless(); lost >= 0 {
		return found, e.history(e.nodes[lost].parent, int(e.nodes[lost].move), "from here, no end can be reached")
	}
	return found, ""
}

// attempt calls f and turns a panic into an error.
func attempt(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return f()
}

// visit records a state, and says whether it is new.
func (e *explorer) visit(w *world, parent int32, move int16) (int32, bool) {
	key := sha256.Sum224(w.fingerprint())
	if at, ok := e.seen[key]; ok {
		return at, false
	}
	at := int32(len(e.nodes))
	e.seen[key] = at
	e.nodes = append(e.nodes, node{parent, move})
	return at, true
}

// endless returns the first state from which no end can be reached, -1 if there is none.
func (e *explorer) endless() int32 {
	before := make([][]int32, len(e.nodes))
	for _, edge := range e.edges {
		before[edge[1]] = append(before[edge[1]], edge[0])
	}
	ends := make([]bool, len(e.nodes))
	stack := append([]int32(nil), e.goals...)
	for _, g := range stack {
		ends[g] = true
	}
	for len(stack) > 0 {
		last := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, b := range before[last] {
			if !ends[b] {
				ends[b] = true
				stack = append(stack, b)
			}
		}
	}
	for at, is := range ends {
		if !is {
			return int32(at)
		}
	}
	return -1
}

// history describes how a state was reached, and what is wrong with the one after it.
func (e *explorer) history(at int32, last int, broken string) string {
	path := []int{last}
	for n := at; n > 0; n = e.nodes[n].parent {
		path = append([]int{int(e.nodes[n].move)}, path...)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "sagatest: %s\nthe shortest history, %d moves:\n", broken, len(path))
	w := newWorld()
	for i, move := range path {
		m := e.next(w)[move]
		w = w.clone()
		err := attempt(func() error { return m.make(w) })
		fmt.Fprintf(&text, "%3d. %s\n", i+1, m.label)
		for _, event := range w.events {
			fmt.Fprintf(&text, "       %s\n", strings.TrimSpace(event.What+" "+event.Step+" "+event.Note))
		}
		if err != nil {
			fmt.Fprintf(&text, "       %v\n", err)
		}
	}
	fmt.Fprintf(&text, "then the instance is %s", w.inst.State.Status())
	return text.String()
}
