package scenariotest

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// Heap (A45) runs the shop for five minutes of virtual time in which most goods are missing, and checks that neither the heap nor the
// goroutines of an engine, its participants and their relays grow. It must not run alongside other tests, nor on a store in memory, whose records
// of steps are kept for weeks.
func Heap[Tx any](t *testing.T, k Kit[Tx]) {
	synctest.Test(t, func(t *testing.T) {
		const minute = 40 // orders of each kind
		w := newWorld(t, k)
		var all []size
		w.sellOut(int(soldOutFor/time.Minute)*minute, func(i int) {
			time.Sleep(time.Minute / minute)
			if (i+1)%minute == 0 {
				all = append(all, w.size())
			}
		})
		t.Logf("after each minute: %+v", all)
		const most = 64 << 10 // 270 bytes for each of 240 instances
		if from, to := all[1], all[len(all)-1]; to.heap-from.heap > most || to.goroutines > from.goroutines {
			t.Errorf("it grows: after two minutes %+v, after five %+v", from, to)
		}
	})
}

// size is what grows if something is never forgotten.
type size struct{ heap, goroutines int }

// size is the smallest of a few sizes, between which relays poll, without what the world itself remembers of messages.
func (w *world[Tx]) size() (least size) {
	w.mu.Lock()
	clear(w.seen)
	w.mu.Unlock()
	for i := range 10 {
		time.Sleep(90 * time.Millisecond)
		synctest.Wait()
		for range 2 { // what a pool keeps is gone after the second
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		now := size{int(m.HeapAlloc), runtime.NumGoroutine()}
		if i == 0 {
			least = now
		}
		least = size{min(least.heap, now.heap), min(least.goroutines, now.goroutines)}
	}
	return least
}
