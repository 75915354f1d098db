package signal

import (
	"context"
	"slices"
	"sync"
)

// After are those to wake once a transaction has committed, because something was published in it. Whoever ends the transaction gives it to
// those who publish in it, in their context.
type After struct {
	mu  sync.Mutex
	all []Waker
}

// Waker wakes those who wait for messages. It is comparable.
type Waker interface{ Wake() }

type afterKey struct{}

// Within returns a context in which After is found.
func (a *After) Within(ctx context.Context) context.Context {
	return context.WithValue(ctx, afterKey{}, a)
}

// WakeAfter has w woken once the transaction of a context has committed. It reports whether somebody will do that.
func WakeAfter(ctx context.Context, w Waker) bool {
	a, ok := ctx.Value(afterKey{}).(*After)
	if !ok {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Contains(a.all, w) {
		a.all = append(a.all, w)
	}
	return true
}

// Wake wakes them all.
func (a *After) Wake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.all {
		w.Wake()
	}
}
