package inboxtest

import (
	"math/rand/v2"
	"time"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
)

// disturb makes the broker redeliver, move partitions, and become unavailable.
func (m *model[Tx]) disturb(rng *rand.Rand, over <-chan struct{}) {
	for {
		m.pause(rng, 120*time.Millisecond)
		select {
		case <-over:
			return
		default:
		}
		switch rng.IntN(4) {
		case 0:
			m.broker.Rebalance(consumer)
		case 1:
			m.broker.SetUnavailable(errCut)
			m.pause(rng, 100*time.Millisecond)
			m.broker.SetUnavailable(nil)
		default:
			m.mu.Lock()
			var ids []string
			for _, of := range m.order {
				for _, id := range of {
					if rng.IntN(8) == 0 {
						ids = append(ids, id)
					}
				}
			}
			m.mu.Unlock()
			m.broker.Redeliver(consumer, ids...)
		}
	}
}

// operate redrives, retries, skips and dead-letters at random.
func (m *model[Tx]) operate(rng *rand.Rand, over <-chan struct{}) {
	for {
		m.pause(rng, 150*time.Millisecond)
		select {
		case <-over:
			return
		default:
		}
		m.intervene(rng)
	}
}

// intervene does what operators do.
func (w *world[Tx]) intervene(rng *rand.Rand) {
	if open := w.deadLetters(""); len(open) > 0 {
		one := open[rng.IntN(len(open))].Number
		_, err := deadletter.New(w.store).RedriveDead(w.ctx, store.DeadFilter{Numbers: []int64{one}, MaxRedrives: deadletter.Unbounded}, "olga", 0)
		w.must(err, "redrive")
	}
	for _, h := range w.held() { // it may have been released since
		switch rng.IntN(12) {
		case 0:
			_ = w.decide(h.Key, store.VerbSkip)
		case 1:
			verb := [2]store.Verb{store.VerbDead, store.VerbDeadAll}[rng.IntN(2)]
			if verb == store.VerbDeadAll {
				w.emptied[h.Key] = true
			}
			_ = w.decide(h.Key, verb)
		case 2, 3:
			_ = w.decide(h.Key, store.VerbRetry)
		}
	}
}
