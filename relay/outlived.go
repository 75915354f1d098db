package relay

import (
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/postrider/postrider/relay/internal/schedule"
	"github.com/postrider/postrider/store"
)

// A call can outlive its relay, not only its lease: Run ends while a handler that ignores its context still works, and a new
// Relay takes over. So these calls are known to the whole process: relays of one name on one store do not work on the same key,
// or on the same message without a key, at the same time.
var outlivedCalls struct {
	count atomic.Int64 // of the calls in out; almost always 0
	mu    sync.Mutex
	out   map[outlivedCall]int
}

type outlivedCall struct {
	relayID
	schedule.Work
}

// relayID is a relay's store and name. It implements schedule.Outlived.
type relayID struct {
	store any
	name  string
}

// id returns what the relay shares with others of its name on its store.
func (r *Relay) id() relayID {
	var of any = r.store
	if w, ok := of.(store.Wrapper); ok {
		of = w.Wraps()
	}
	if !reflect.ValueOf(of).Comparable() {
		return relayID{r, r.cfg.Name}
	}
	return relayID{of, r.cfg.Name}
}

func (id relayID) Add(w schedule.Work, n int) {
	c := &outlivedCalls
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out == nil {
		c.out = make(map[outlivedCall]int)
	}
	call := outlivedCall{id, w}
	if c.out[call] += n; c.out[call] == 0 {
		delete(c.out, call)
	}
	c.count.Add(int64(n))
}

func (id relayID) Out(w schedule.Work) bool {
	c := &outlivedCalls
	if c.count.Load() == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out[outlivedCall{id, w}] > 0
}
