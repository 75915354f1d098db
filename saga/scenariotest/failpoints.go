package scenariotest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

// failing is a store of which every third commit fails, by turns before and after it has happened.
type failing[Tx any] struct {
	Store[Tx]
	mu      sync.Mutex
	commits map[string]int // by relay; "" of other transactions
	hits    map[string]int // by relay and kind
	off     bool
}

var errFailPoint = errors.New("the connection broke")

// fails says whether the next commit of a relay fails before or after it happens.
func (f *failing[Tx]) fails(relay string) (before, after bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commits[relay]++
	n := f.commits[relay]
	if f.off || n%3 > 0 {
		return false, false
	}
	if before = n%2 == 0; before {
		f.hits[relay+" before"]++
	} else {
		f.hits[relay+" after"]++
	}
	return before, !before
}

// Commit implements store.Transactor.
func (f *failing[Tx]) Commit(ctx context.Context, tx Tx) error {
	before, after := f.fails("")
	if before {
		return errors.Join(errFailPoint, f.Rollback(ctx, tx))
	}
	if err := f.Store.Commit(ctx, tx); err != nil || !after {
		return err
	}
	return errFailPoint
}

// CommitSettled implements store.TxSettler.
func (f *failing[Tx]) CommitSettled(ctx context.Context, tx Tx, relay string, s store.Settlement) ([]string, error) {
	before, after := f.fails(relay)
	if before {
		return nil, errors.Join(errFailPoint, f.Rollback(ctx, tx))
	}
	released, err := f.Store.CommitSettled(ctx, tx, relay, s)
	if err != nil || !after {
		return released, err
	}
	return nil, errFailPoint
}

// hit says whether each fail point of these relays was hit so often, which turns them off.
func (f *failing[Tx]) hit(times int, relays ...string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.off = !slices.ContainsFunc(relays, func(r string) bool { return f.hits[r+" before"] < times || f.hits[r+" after"] < times })
	return f.off
}

// failCommits lets the commits of the world's store fail.
func (w *world[Tx]) failCommits() *failing[Tx] {
	f := &failing[Tx]{Store: w.store, commits: make(map[string]int), hits: make(map[string]int)}
	w.store, w.box = f, w.newOutbox(f)
	w.engine = w.newEngine()
	return f
}

// run runs a relay that tries each message again and again: the second commit of a message that fails counts as its own failure.
func (f *failing[Tx]) run(w *world[Tx], name string, topics []string, register func(r *relay.Relay) error) {
	c := relayConfig(name, topics)
	c.MaxAttempts = 1_000_000
	r, err := relay.New(f, c)
	w.must(err)
	w.must(register(r))
	w.keepRunning(name, r.Run)
}

// failPoints: starts, the engine and its participants fail before and after commits. Each saga ends as its refusals say, with the effects
// of all of its steps, or of none.
func failPoints[Tx any](w *world[Tx]) {
	times := scaled(w, 20, 3)
	if w.kit.torture {
		times = 100
	}
	f := w.failCommits()
	var refused sync.Map // by instance
	w.onDo("charge", func(_ Tx, m *postrider.Message) error {
		if _, is := refused.Load(m.Headers["postrider-saga"]); is {
			return saga.Refuse("limit", nil)
		}
		return nil
	})
	s := w.register(define(reserveStep(), w.localStep("book", nil), chargeStep(), shipStep()))
	w.run("ledger", []string{"effects", "announcements"}, w.count)
	f.run(w, "engine", []string{w.engine.Topic()}, w.engine.Relay)
	f.run(w, "participants", participantTopics, w.newParticipant(f, w.box).Relay)
	want := make(map[string]saga.Status)
	for n := 0; !f.hit(times, "", "engine", "participants"); n++ {
		id := fmt.Sprint(n)
		want[id] = saga.Completed
		if n%20 == 1 {
			refused.Store(id, true)
			want[id] = saga.Compensated
		}
		w.start(s, order{ID: id})
		if n%10 == 9 { // so that commits are many
			w.ends(s, id, want[id])
		}
	}
	completed := 0
	for _, id := range slices.Sorted(maps.Keys(want)) {
		w.ends(s, id, want[id])
		if want[id] == saga.Completed {
			completed++
		}
	}
	w.Logf("%d sagas; fail points: %v", len(want), f.hits)
	w.ledger(map[string]int{"reserve": completed, "book": completed, "charge": completed, "ship": completed})
}
