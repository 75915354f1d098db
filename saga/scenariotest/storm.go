package scenariotest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

// limit is the longest time between two calls of payments for an order, in times between two waves.
const limit = 6

// stocktaking is a saga that needs no payments.
const stocktaking = "stocktaking"

// unhurried is a store whose transactions take an engine a while, since in virtual time work takes none.
type unhurried[Tx any] struct {
	Store[Tx]
	takes time.Duration
}

func (u *unhurried[Tx]) LoadSagas(ctx context.Context, tx Tx, runs []string) ([]store.SagaInstance, error) {
	time.Sleep(u.takes)
	return u.Store.LoadSagas(ctx, tx, runs)
}

// storm is a shop whose payments are down for a while. Times are in seconds; where time is not virtual, they have no duration. All of
// them are multiples of the time between two waves of orders, so that waves that fail are repeated together, and all of them in the same
// seconds, unless jitter spreads them.
type storm[Tx any] struct {
	*world[Tx]
	orders, counts *saga.Saga[Tx, order] // counts need no payments
	down, up, over int                   // when payments go down, when they are up again, and when the last saga starts that needs none
	waves, size    int                   // the time between two waves of orders, and their size
	every          time.Duration         // the time between two waves
	pace           int                   // the time between two sagas that need no payments
	fresh          int                   // how many of these there are

	begun           time.Time
	smu             sync.Mutex
	broken          bool
	calls, requests repeats // calls of payments, and undos that the engine has asked for again
}

// paymentsDown: payments are down for ten minutes, and orders come in waves, as after a newsletter. Sagas without payments end as fast as
// before. The orders end once payments are up again, and are tried again evenly, although each wave has failed together. In memory there
// are 200 orders a second, payments are down for 24 seconds, and all other times are a tenth; Torture has the ten minutes, with 20 orders a
// second.
func paymentsDown[Tx any](w *world[Tx]) {
	every := 20 * time.Second
	if w.kit.InMemory && !w.kit.torture {
		every = 2 * time.Second
	}
	w.pollMax = scaled(w, every, 0) // relays are woken
	own := w.store
	w.store = &unhurried[Tx]{own, scaled(w, 20*time.Millisecond, 0)}
	w.engine = w.newEngine(func(c *saga.Config) {
		c.UndoTimeout, c.UndoAttempts = scaled(w, 2*every, time.Second), 200
		c.BackoffBase, c.BackoffMax = scaled(w, every, time.Second), scaled(w, 15*every, 10*time.Second)
	})
	w.store = own
	s := newStorm(w, every)
	w.onDo("charge", func(_ Tx, m *postrider.Message) error { return s.call(m) })
	w.tamper("card.charge.undo", s.request)
	w.runEngine()
	w.run("stock", []string{"stock"}, w.newParticipant(w.store, w.box).Relay)
	s.runPayments()
	n := s.rage()
	s.subsides(n)
	if w.kit.InMemory {
		s.spread(n)
	}
}

// spread checks that nothing was repeated in lockstep.
func (s *storm[Tx]) spread(orders int) {
	s.smu.Lock()
	defer s.smu.Unlock()
	wave := make(map[string]int, orders)
	for i := range orders {
		wave[fmt.Sprint("order ", i)] = i / s.size
	}
	wait := limit * s.waves
	for _, err := range []error{
		even(s.Logf, "repeated undos while payments are down", s.requests, (s.down+s.up)/2, s.up),
		even(s.Logf, "calls of payments while the backlog drains", s.calls, s.up, s.up+wait),
		jittered(s.Logf, "repeated undos", s.requests, wave, 0, s.every/2), // the first backoff is between half of its base and the whole
		jittered(s.Logf, "calls of payments", s.calls, wave, 1, s.every/2),
	} {
		if err != nil {
			s.Error(err)
		}
	}
}

// newStorm has 200 orders a second where thousands of sagas take seconds, and 20 a second for ten minutes if it may take minutes.
func newStorm[Tx any](w *world[Tx], every time.Duration) *storm[Tx] {
	s := &storm[Tx]{
		world: w, begun: time.Now(), calls: make(repeats), requests: make(repeats), every: every,
		down: 1, up: 20, over: 20, waves: 1, size: 1, pace: 1,
	}
	if w.kit.Bubble {
		s.waves = int(every / time.Second)
		s.down, s.up, s.over, s.pace = 3*s.waves, 33*s.waves, 42*s.waves, s.waves/2
	}
	switch {
	case w.kit.torture:
		s.size = 20 * s.waves
	case w.kit.InMemory:
		s.size, s.up, s.over = 200*s.waves, 15*s.waves, 20*s.waves
	}
	counting := define(reserveStep())
	counting.Name = stocktaking
	s.counts = w.register(counting)
	s.orders = w.register(define(reserveStep(), within(scaled(w, 3*every, time.Second), chargeStep())))
	return s
}

// runPayments runs payments with a relay that does not give up.
func (s *storm[Tx]) runPayments() {
	c := relayConfig("cards", []string{"cards"})
	c.MaxAttempts, c.PollMax = 10_000, cmp.Or(s.pollMax, c.PollMax)
	c.BackoffBase, c.BackoffMax = scaled(s.world, s.every, 100*time.Millisecond), scaled(s.world, limit*s.every, 2*time.Second)
	r, err := relay.New(s.store, c)
	s.must(err)
	s.must(s.newParticipant(s.store, s.box).Relay(r))
	s.keepRunning("cards", r.Run)
}

// call is a call of payments.
func (s *storm[Tx]) call(m *postrider.Message) error {
	s.smu.Lock()
	defer s.smu.Unlock()
	s.calls.add(m, time.Since(s.begun))
	if s.broken {
		return errors.New("payments are down")
	}
	return nil
}

// request notes an undo of a charge that the engine asks for again.
func (s *storm[Tx]) request(m *postrider.Message) {
	if m.Headers["postrider-saga-attempt"] == "1" {
		return
	}
	s.smu.Lock()
	defer s.smu.Unlock()
	s.requests.add(m, time.Since(s.begun))
}

func (s *storm[Tx]) breaks(broken bool) {
	s.smu.Lock()
	defer s.smu.Unlock()
	s.broken = broken
}

// rage lets the storm pass, and returns how many orders it had. Payments are up again at the end.
func (s *storm[Tx]) rage() (orders int) {
	for second := range s.over {
		s.breaks(second >= s.down && second < s.up)
		if second < s.up && second%s.waves == 0 {
			s.startAll(s.orders, "order", orders, orders+s.size)
			orders += s.size
		}
		if second%s.pace == 0 {
			s.startAll(s.counts, "count", s.fresh, s.fresh+1)
			s.fresh++
		}
		time.Sleep(scaled(s.world, time.Second, 0))
	}
	if !s.kit.Bubble {
		s.await("repeated undos", func() bool {
			repeated := 0
			for i := range orders {
				if s.undos(fmt.Sprint("order ", i)) > 2 {
					repeated++
				}
			}
			return repeated > 5
		})
	}
	s.breaks(false)
	return orders
}

// startAll starts the instances of some numbers at the same time.
func (s *storm[Tx]) startAll(of *saga.Saga[Tx, order], name string, from, to int) {
	const starters = 16
	var all sync.WaitGroup
	for first := range min(starters, to-from) {
		all.Go(func() {
			for i := from + first; i < to; i += starters {
				o := order{ID: fmt.Sprint(name, " ", i)}
				_, err := s.box.InTx(s.Context(), func(ctx context.Context, tx Tx) error {
					_, err := of.Start(ctx, tx, o, saga.ID(o.ID))
					return err
				})
				if err != nil {
					s.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// subsides waits for the end of all sagas. Those without payments have taken no longer in the storm than before.
func (s *storm[Tx]) subsides(orders int) {
	completed := 0
	for i := range orders {
		ctx, cancel := context.WithTimeout(s.Context(), patience)
		r, err := s.orders.Wait(ctx, fmt.Sprint("order ", i))
		cancel()
		s.must(err)
		if r.Status == saga.Completed {
			completed++
		}
	}
	for i := range s.fresh {
		s.ends(s.counts, fmt.Sprint("count ", i), saga.Completed)
	}
	left := map[string]int{"reserve": s.fresh + completed, "charge": completed}
	maps.DeleteFunc(left, func(_ string, n int) bool { return n == 0 })
	s.ledger(left)
	if !s.kit.Bubble {
		return
	}
	fresh, err := s.store.ListSagas(s.Context(), store.SagaFilter{Saga: stocktaking}, "", s.fresh)
	s.must(err)
	stormed := s.begun.Add(time.Duration(s.down) * time.Second)
	before := slices.DeleteFunc(slices.Clone(fresh), func(f store.SagaSummary) bool { return f.StartedAt.After(stormed) })
	usual, longest := s.longest(before), s.longest(fresh)
	s.Logf("%d of %d orders completed; sagas without payments took up to %s, before the storm up to %s", completed, orders, longest, usual)
	if len(fresh) != s.fresh || len(before) == 0 || longest > usual+100*time.Millisecond {
		s.Errorf("%d sagas without payments took up to %s, %d before the storm up to %s", len(fresh), longest, len(before), usual)
	}
}

// undos is how often the undo of charge was sent.
func (w *world[Tx]) undos(id string) int {
	return len(slices.DeleteFunc(w.history(id), func(e string) bool { return e != "undo.sent charge" }))
}
