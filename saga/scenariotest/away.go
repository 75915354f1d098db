package scenariotest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
)

// missing is the order whose reservation nobody hears of.
const missing = "missing"

// trackerAway: the tracker is away for an hour, in which the services finish hundreds of orders and every time of the contract ends. The
// tracker first reads what has happened, so that these orders complete. One whose event is really missing is turned back, after the reading.
// Times begin when the tracker records an event (docs/adr/0020).
func trackerAway[Tx any](w *world[Tx]) {
	w.pollMax = scaled(w, 5*time.Minute, 0) // an hour of looking for messages costs much processor time
	s := w.choreograph()
	contract := byEvents(func(c *saga.Contract) {
		c.Deadline, c.Events[1].Within = scaled(w, 30*time.Minute, 200*time.Millisecond), scaled(w, 10*time.Minute, 100*time.Millisecond)
	})
	s.tamper(stockReserved.Type(), func(m *postrider.Message) {
		if m.Key == orderKey(item{missing}) {
			m.Topic = "nowhere"
		}
	})
	s.must(saga.Track(s.engine, contract))
	s.consume("tracker", s.engine.Topics(), s.engine.Consume) // its timers wait
	orders := []string{s.order(missing)}
	for i := range 240 {
		orders = append(orders, s.order(fmt.Sprint("before ", i)))
	}
	for _, id := range orders {
		s.is(id, "the first event", func(r instance) bool { return r.Rev > 0 })
	}
	s.stop["tracker"]()
	begun := orders
	orders = append(orders, s.hourAlone(begun)...)

	s.engine = s.newEngine()
	s.must(saga.Track(s.engine, contract))
	tracker := s.consumer("tracker", s.engine.Topics(), slowly(scaled(w, 10*time.Millisecond, 0)))
	s.must(s.engine.Consume(tracker))
	timers := s.runTimers()
	s.await("the timers of all instances", func() bool { return timers() >= len(begun) })
	for _, id := range begun {
		if r := s.is(id, "", func(instance) bool { return true }); r.Status != saga.Running || r.Cause != nil {
			s.Fatalf("instance %s is %s before its events are read:\n%s", id, r.Status, s.historyText(id))
		}
	}
	s.keepRunning("tracker", tracker.Run)
	for _, id := range orders[1:] {
		s.endsAs(id, saga.Completed)
	}
	if r := s.endsAs(orders[0], saga.Compensated); r.Cause.Kind != saga.CauseTimedOut || r.Cause.Step != stockReserved.Type() {
		s.Errorf("cause %+v, want the timeout of %s", r.Cause, stockReserved.Type())
	}
	n := len(orders) - 1
	s.ledger(map[string]int{"reserve": n, "charge": n, "confirm": n})
}

// hourAlone runs the services without the tracker, one later than the other, until every time of the contract is over for instances that have
// begun. In virtual time that is an hour. It returns the orders that come meanwhile, and waits until the services have finished all of them.
func (s *choreography[Tx]) hourAlone(begun []string) (more []string) {
	const hour = 60
	for minute := range hour {
		switch minute {
		case hour - 9:
			s.runInventory()
		case hour - 6:
			s.runPayments()
		case hour - 3:
			s.runOrders()
		}
		more = append(more, s.order(fmt.Sprint("meanwhile ", minute)))
		time.Sleep(scaled(s.world, time.Minute, 0))
	}
	n := len(begun) + len(more)
	s.ledger(map[string]int{"reserve": n, "charge": n - 1, "confirm": n - 1})
	s.await("the end of all times", func() bool {
		last, err := s.store.ShowSaga(s.Context(), begun[len(begun)-1])
		s.must(err)
		return last.Age > last.Deadline
	})
	return more
}

// slowly makes each call of a handler take a while.
func slowly(while time.Duration) relay.Interceptor {
	return func(next postrider.Handler) postrider.Handler {
		return func(ctx context.Context, m *postrider.Message) error {
			time.Sleep(while)
			return next(ctx, m)
		}
	}
}

// runTimers runs the relay of the engine's timers. It returns a function that says of how many instances a timer was handled.
func (s *choreography[Tx]) runTimers() (instances func() int) {
	var mu sync.Mutex
	handled := make(map[string]bool)
	config := relayConfig("engine", []string{s.engine.Topic()})
	config.Interceptors = []relay.Interceptor{func(next postrider.Handler) postrider.Handler {
		return func(ctx context.Context, m *postrider.Message) error {
			err := next(ctx, m)
			mu.Lock()
			defer mu.Unlock()
			handled[m.Key] = true
			return err
		}
	}}
	r, err := relay.New(s.store, config)
	s.must(err)
	s.must(s.engine.Relay(r))
	s.keepRunning("engine", r.Run)
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(handled)
	}
}
