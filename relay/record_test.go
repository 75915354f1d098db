package relay_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// record is what happened in a history.
type record struct {
	mu        sync.Mutex
	published map[string][]string // by key, in the order of commits: the IDs of committed messages
	delivered map[string][]string // by key, each message when it was first delivered
	times     map[string]int      // how often a message was delivered
	left      map[string]bool     // messages that left the order of their key: they were delayed, or perhaps dead-lettered
	underway  map[string]string   // by key, the message that is being worked on
	story     []string
}

func newRecord() record {
	return record{
		published: make(map[string][]string), delivered: make(map[string][]string), times: make(map[string]int),
		left: make(map[string]bool), underway: make(map[string]string),
	}
}

// committed records messages whose transaction is about to commit.
func (r *record) committed(msgs []*postrider.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range msgs {
		r.published[m.Key] = append(r.published[m.Key], m.ID)
	}
}

func (r *record) leaves(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left[id] = true
}

// begin records that the destination begins to work on messages, and returns a function that records the end. No other
// message of their keys may be in progress, in any process.
func (h *history) begin(msgs ...*postrider.Message) (end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var keys []string
	for _, m := range msgs {
		if m.Key == "" || slices.Contains(keys, m.Key) {
			continue
		}
		if other := h.underway[m.Key]; other != "" {
			h.t.Errorf("two at once: work on message %s of key %s begins while %s is worked on", m.ID, m.Key, other)
		}
		keys, h.underway[m.Key] = append(keys, m.Key), m.ID
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, key := range keys {
			delete(h.underway, key)
		}
	}
}

// ended records the destination's answer for a message. A message that it dead-letters leaves the order of its key, even if
// the process ends before that is recorded, so that the message is delivered again.
func (h *history) ended(m *postrider.Message, err error) {
	h.note("message %s, key %q, attempt %d: %v", m.ID, m.Key, m.Attempt, err)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch o := postrider.OutcomeOf(err); {
	case o.Kind == postrider.Delivered:
		if h.times[m.ID]++; h.times[m.ID] == 1 {
			h.delivered[m.Key] = append(h.delivered[m.Key], m.ID)
		}
	case o.Kind == postrider.DeadLettered, o.Kind == postrider.Retried && m.Attempt >= h.cfg.MaxAttempts:
		h.left[m.ID] = true
	}
}

// note adds to the log of the history.
func (r *record) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.story = append(r.story, time.Now().Format("15:04:05.000000 ")+fmt.Sprintf(format, args...))
}

// tell prints the log of the history.
func (h *history) tell() {
	for _, connection := range h.story {
		h.t.Log(connection)
	}
}

// result compares the outcome of a history with the guarantees.
func (h *history) result() {
	h.mu.Lock()
	defer h.mu.Unlock()
	died := h.dead()
	known := make(map[string]bool)
	happened, effects := h.effects()
	alive := int64(0) // those without a dead letter
	for _, key := range slices.Sorted(maps.Keys(h.published)) {
		for _, id := range h.published[key] {
			known[id] = true
			if died[id] == 0 {
				alive++
			}
			if n := effects[id]; h.tx && (n > 1 || n == 0 && died[id] == 0) {
				h.t.Errorf("message %s of key %q has had %d effects, and has %d dead letters", id, key, n, died[id])
			}
			if h.times[id] == 0 && died[id] == 0 {
				h.t.Errorf("lost: message %s of key %q was committed, and is neither delivered nor dead", id, key)
			}
			if h.once && !h.tx && h.times[id] > 1 && died[id] == 0 {
				h.t.Errorf("twice: message %s of key %q was delivered %d times, and nothing had failed", id, key, h.times[id])
			}
		}
		if key == "" {
			continue
		}
		gone := func(id string) bool { return died[id] > 0 || h.left[id] }
		published := slices.DeleteFunc(slices.Clone(h.published[key]), gone)
		delivered := slices.DeleteFunc(slices.Clone(h.delivered[key]), gone)
		if !slices.Equal(published, delivered) {
			h.t.Errorf("out of order: key %s\npublished %v\ndelivered %v (each when it was first)", key, published, delivered)
		}
		if took := slices.DeleteFunc(slices.Clone(happened[key]), gone); h.tx && !slices.Equal(published, took) {
			h.t.Errorf("out of order: key %s\npublished %v\neffects   %v", key, published, took)
		}
	}
	for id := range h.times {
		if !known[id] {
			h.t.Errorf("not atomic: message %s was delivered, but its transaction was rolled back", id)
		}
	}
	// A crash can lose the count of parked messages whose side effects were committed, because it is not part of their
	// transactions.
	if n := h.status().Delivered; !h.operators && (n > alive || n < alive && (h.once || !h.tx)) {
		h.t.Errorf("%d messages count as delivered, want %d", n, alive)
	}
	if st := h.status(); st.Backlog.N+st.Parked.N+st.Held.N != 0 {
		h.t.Errorf("not at rest: backlog %d, parked %d, held keys %d", st.Backlog.N, st.Parked.N, st.Held.N)
	}
	for _, p := range h.processes {
		c := p.Counters()
		c.CircuitOpen = false // if its messages were lost with the lease, there is nothing left to probe with
		if c != (relay.Counters{}) {
			h.t.Errorf("at rest, process %s counts %+v", p.Owner().ID, c)
		}
	}
}

// letters counts the dead letters of each message. Without store faults there is one for each time it was redriven.
func (h *history) dead() map[string]int {
	died := make(map[string]int)
	for l, err := range deadletter.New(h.store).ListDead(h.t.Context(), store.DeadFilter{State: store.DeadAny}, 0, 0) {
		if err != nil {
			h.t.Fatalf("list dead letters: %v", err)
		}
		id := l.Message.ID
		if died[id]++; died[id] > 1 && l.Redrives == 0 && h.calm {
			h.t.Errorf("message %s, which was not redriven, has %d dead letters", id, died[id])
		}
	}
	return died
}

// chance is a source of random decisions.
type chance struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func newChance(seed, stream uint64) *chance { return &chance{rng: rand.New(rand.NewPCG(seed, stream))} }

func (c *chance) float() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.Float64()
}

// int returns a random number from 0 to n-1.
func (c *chance) int(n int) int              { return int(c.float() * float64(n)) }
func (c *chance) oneIn(n int) bool           { return c.int(n) == 0 }
func (c *chance) happens(share float64) bool { return c.float() < share }

// upTo returns a random time below a limit.
func (c *chance) upTo(limit time.Duration) time.Duration {
	return time.Duration(c.float() * float64(limit))
}

// pick returns one of several values.
func pick[T any](c *chance, of ...T) T { return of[c.int(len(of))] }
