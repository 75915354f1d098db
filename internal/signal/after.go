package signal

import (
	"context"
	"slices"
	"sync"
)

// After are those to wake once a transaction has committed, because of something that was done in it. Whoever ends the transaction gives it
// to those who work in it, in their context. Work that may be undone alone, in a savepoint, has an After of its own (Join).
type After struct {
	mu  sync.Mutex
	all map[Waker][]string // topics, nil for all
}

// Waker wakes those who wait for messages of some topics, or everybody if no topic is given. It is comparable.
type Waker interface{ Wake(topics ...string) }

// maxTopics is how many topics are kept for a Waker; with more, it wakes everybody.
const maxTopics = 16

type afterKey struct{}

// Within returns a context in which After is found.
func (a *After) Within(ctx context.Context) context.Context {
	return context.WithValue(ctx, afterKey{}, a)
}

// AfterOf returns the After of the transaction of a context, nil if there is none.
func AfterOf(ctx context.Context) *After {
	a, _ := ctx.Value(afterKey{}).(*After)
	return a
}

// Add has w called once the transaction has committed, with these topics and those of other calls; without topics, for everybody.
func (a *After) Add(w Waker, topics ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	had, known := a.all[w]
	if known && had == nil {
		return
	}
	if a.all == nil {
		a.all = make(map[Waker][]string)
	}
	for _, t := range topics {
		if !slices.Contains(had, t) {
			had = append(had, t)
		}
	}
	if len(topics) == 0 || len(had) > maxTopics {
		had = nil
	}
	a.all[w] = had
}

// Join has those of a woken after the transaction of ctx, to which they belong, too.
func (a *After) Join(ctx context.Context) {
	outer := AfterOf(ctx)
	if outer == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for w, topics := range a.all {
		outer.Add(w, topics...)
	}
}

// Wake wakes them all.
func (a *After) Wake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for w, topics := range a.all {
		w.Wake(topics...)
	}
}
