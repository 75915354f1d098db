package scenariotest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

// instance is one that a contract tracks.
type instance = saga.Result[json.RawMessage]

var errNo = errors.New("no")

func refuses[Tx any](Tx, *postrider.Message) error { return errNo }

// choreographed: services that know events only; the tracker asks for the undos, in reverse order.
func choreographed[Tx any](w *world[Tx]) {
	s := w.choreograph()
	s.runTracker(byEvents())
	s.runInventory()
	s.runPayments()
	s.runOrders()

	id := s.order("1")
	s.endsAs(id, saga.Completed)
	s.ledger(map[string]int{"reserve": 1, "charge": 1, "confirm": 1})
	stored, err := s.store.ShowSaga(s.Context(), id)
	s.must(err)
	if stored.Kind != store.SagaChoreographed || stored.CorrelationID != id || stored.Saga != "by-events" {
		s.Errorf("the instance is %+v", stored.SagaIdentity)
	}

	s.onDo("charge", refuses[Tx])
	id = s.order("2")
	if r := s.endsAs(id, saga.Compensated); r.Cause.Step != "card.charged" || r.Cause.Kind != saga.CauseRefused || r.Cause.Reason != "card.declined" {
		s.Errorf("cause %+v, want the refusal by card.declined", r.Cause)
	}
	s.has(id, "step.done stock.reserved", 1) // the events come from two topics, in either order
	s.inOrder(id, "step.refused card.charged", "undo.sent stock.reserved", "step.undone stock.reserved",
		"undo.sent order.created", "step.undone order.created", "compensated")

	s.onDo("reserve", refuses[Tx])
	id = s.order("3")
	if r := s.endsAs(id, saga.Compensated); r.Cause.Step != "stock.reserved" {
		s.Errorf("cause %+v, want that of stock.reserved", r.Cause)
	}
	s.has(id, "undo.sent stock.reserved", 0)
	s.ledger(map[string]int{"reserve": 1, "charge": 1, "confirm": 1})
}

// choreographyObserved: the services undo by themselves, and the tracker publishes nothing.
func choreographyObserved[Tx any](w *world[Tx]) {
	s := w.choreograph()
	s.runTracker(byEvents(observed))
	s.runInventory()
	s.runPayments()
	s.runOrders()
	s.endsAs(s.order("o1"), saga.Completed)
	s.onDo("charge", refuses[Tx])
	id := s.order("o2")
	s.endsAs(id, saga.Compensated)
	s.has(id, "undo.sent stock.reserved", 0)
	s.has(id, "step.undone stock.reserved", 1)
	s.onDo("reserve", refuses[Tx])
	s.endsAs(s.order("o3"), saga.Compensated)
	s.ledger(map[string]int{"reserve": 1, "charge": 1, "confirm": 1})
}

// inOrder checks that entries are in a history, in this order.
func (s *choreography[Tx]) inOrder(id string, entries ...string) {
	s.Helper()
	left := entries
	for _, e := range s.history(id) {
		if len(left) > 0 && e == left[0] {
			left = left[1:]
		}
	}
	if len(left) > 0 {
		s.Errorf("the history lacks %q after %q:\n%s", left, entries[:len(entries)-len(left)], s.historyText(id))
	}
}

// outOfOrder: all orders of four events, each twice, have the same end. The events come by the own outbox.
func outOfOrder[Tx any](w *world[Tx]) {
	w.must(saga.Track(w.engine, byEvents()))
	s := &choreography[Tx]{world: w}
	w.run("engine", append(w.engine.Topics(), w.engine.Topic()), w.engine.Relay)
	events := []postrider.Definition[item]{orderCreated, stockReserved, cardCharged, orderConfirmed}
	var ids []string
	for i, order := range permutations(len(events)) {
		id := fmt.Sprint("order-", i)
		ids = append(ids, id)
		w.inTx(func(ctx context.Context, tx Tx) error {
			for _, n := range slices.Concat(order, order) {
				m, err := events[n].New(item{id})
				if err != nil {
					return err
				}
				m.CorrelationID = id
				if _, err := w.box.Publish(ctx, tx, m); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for _, id := range ids {
		r := s.endsAs(id, saga.Completed)
		if r.Rev > 5 {
			s.Errorf("instance %s has %d transitions: duplicates count", id, r.Rev)
		}
	}
}

// permutations are all orders of n numbers.
func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for _, p := range permutations(n - 1) {
		for at := range n {
			all = append(all, slices.Insert(slices.Clone(p), at, n-1))
		}
	}
	return all
}

// eventMissing: an event that does not come in time turns the instance back, and names the service. One that comes later is undone.
func eventMissing[Tx any](w *world[Tx]) {
	w.engine = w.newEngine(func(c *saga.Config) { c.UndoTimeout = time.Hour })
	s := w.choreograph()
	s.runTracker(byEvents(func(c *saga.Contract) { c.Events[2].Within = 300 * time.Millisecond }))
	s.runInventory()
	s.runPayments()
	s.runOrders()
	s.stop["out payments"]() // its events stay in its outbox
	id := s.order("1")
	r := s.is(id, "the refund", func(r instance) bool {
		return r.Cause != nil && slices.Contains(s.history(id), "undo.sent card.charged")
	})
	if r.Cause.Kind != saga.CauseTimedOut || r.Cause.Step != "card.charged" || r.Cause.Text != "payments did not publish it within 300ms" {
		s.Errorf("cause %+v, want the timeout of card.charged, with its service", r.Cause)
	}
	s.ledger(map[string]int{"reserve": 1})
	s.publishes("payments")
	s.endsAs(id, saga.Compensated)
	s.has(id, "late card.charged", 0) // its undo was under way already
	s.ledger(nil)
}

// serviceDown: what a service has not done when it is undone, it never does.
func serviceDown[Tx any](w *world[Tx]) {
	s := w.choreograph()
	s.runTracker(byEvents(func(c *saga.Contract) { c.Deadline = 300 * time.Millisecond }))
	s.runInventory()
	s.runOrders()
	id := s.order("1")
	r := s.is(id, "the refund", func(r instance) bool {
		return r.Cause != nil && slices.Contains(s.history(id), "undo.sent card.charged")
	})
	if r.Cause.Kind != saga.CauseTimedOut || !strings.HasPrefix(r.Cause.Text, "waiting for ") || !strings.Contains(r.Cause.Text, " from ") {
		s.Errorf("cause %+v, want the deadline, with what was waited for", r.Cause)
	}
	s.runPayments()
	s.endsAs(id, saga.Compensated)
	s.ledger(nil)
}

// undoMissing: with Observe, the tracker says which service has not undone its part.
func undoMissing[Tx any](w *world[Tx]) {
	w.engine = w.newEngine(func(c *saga.Config) { c.StuckAfter = 300 * time.Millisecond })
	s := w.choreograph()
	s.runTracker(byEvents(observed))
	s.runInventory()
	s.runPayments()
	s.runOrders()
	s.onDo("charge", refuses[Tx])
	id := s.order("x1") // only orders reacts
	r := s.is(id, "being stuck", func(r instance) bool { return r.Status == saga.Stuck })
	stored, err := s.store.ShowSaga(s.Context(), id)
	s.must(err)
	if !slices.Equal(r.Waiting, []string{"stock.reserved"}) || !strings.Contains(string(stored.State), "inventory has not undone it: there was no stock.released within 300ms") {
		s.Errorf("waits for %q in %s, want it to name inventory and its event", r.Waiting, stored.State)
	}
	if refused := s.operate(id, saga.Operation{Verb: saga.Edit, Patch: []byte(`{}`)}); refused == "" {
		s.Error("the data of an instance that is tracked were edited")
	}
	if refused := s.operate(id, saga.Operation{Verb: saga.Undone, Step: "stock.reserved"}); refused != "" {
		s.Error(refused)
	}
	s.endsAs(id, saga.Compensated)
}
