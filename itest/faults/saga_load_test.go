package faults

import (
	"context"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga"
)

// callers start sagas, so many that none is late when starts take long.
const callers = 32

// sagaRate is how many sagas are started in a second: few in the test suite, many when make torture sets the time.
func sagaRate() int {
	if os.Getenv("POSTRIDER_TORTURE") == "" {
		return 10
	}
	return 200
}

// load starts sagas until ctx ends.
func (w *sagaWorld[Tx]) load(ctx context.Context, s sagaStores[Tx]) (wait func()) {
	box, _, orders, err := newShop(s, w.session, testLogger(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	interval := callers * time.Second / time.Duration(sagaRate())
	var all sync.WaitGroup
	for range callers {
		random := rand.New(rand.NewPCG(w.random.Uint64(), 0))
		all.Go(func() {
			for next := time.Now(); ctx.Err() == nil; next = next.Add(time.Duration(random.Int64N(int64(2 * interval)))) {
				select {
				case <-time.After(time.Until(next)):
				case <-ctx.Done():
					return
				}
				o := shopOrder{ID: postrider.NewID(), Mode: modeOf(random.IntN(100), random.IntN(3))}
				deadline := time.Now().Add(patience)
				for { // until it is certain that it was started, whatever happens to the server
					try, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), 10*time.Second)
					_, err := box.InTx(try, func(ctx context.Context, tx Tx) error {
						_, err := orders.Start(ctx, tx, o, saga.ID(o.ID))
						return err
					})
					cancel()
					if err == nil {
						break
					}
					if time.Now().After(deadline) {
						w.t.Errorf("no saga could be started for %s: %v", patience, err)
						return
					}
					<-time.After(50 * time.Millisecond)
				}
				w.mu.Lock()
				w.started[o.ID] = o.Mode
				w.mu.Unlock()
			}
		})
	}
	return all.Wait
}

// modeOf is what goes wrong with an order: 5 of 100 are refused and 1 times out.
func modeOf(percent, which int) mode {
	switch {
	case percent < 3:
		return declined
	case percent < 5:
		return noParcel
	case percent < 6:
		return []mode{slowCard, lateReply, overtaken}[which]
	}
	return ""
}
