package scenariotest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/saga"
)

var book = saga.DefineStep[item, item]("room.book").WithTopic("rooms")

// hotel is a remote service that knows idempotency keys.
type hotel struct {
	mu       sync.Mutex
	requests []string // their keys
	rooms    int
	lose     bool // the next answer
}

// request handles a request with a key: the first one changes the number of rooms.
func (h *hotel) request(key string, change int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Contains(h.requests, key) {
		h.rooms += change
	}
	h.requests = append(h.requests, key)
	lost := h.lose
	h.lose = false
	if lost {
		return errors.New("the connection broke")
	}
	return nil
}

// has checks how many rooms are booked, after how many requests.
func (h *hotel) has(w interface{ Errorf(string, ...any) }, rooms, requests int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rooms != rooms || len(h.requests) != requests {
		w.Errorf("%d rooms are booked by requests with the keys %q, want %d by %d requests", h.rooms, h.requests, rooms, requests)
	}
}

// calls: a call whose answer is lost is repeated with its key, and has one effect. It is undone by another
// call, and its refusal turns the saga back.
func calls[Tx any](w *world[Tx]) {
	h := &hotel{lose: true}
	p, err := saga.NewParticipant(saga.Records[Tx](w.store), w.box, saga.ParticipantConfig{Name: "rooms"})
	w.must(err)
	w.must(saga.HandleCall(p, book, func(_ context.Context, key string, m postrider.Typed[item]) (item, error) {
		if m.Data.ID == "none" {
			return item{}, saga.Refuse("booked out", errors.New("there is no room"))
		}
		return item{"room of " + m.Data.ID}, h.request(key, 1)
	}, func(_ context.Context, key string, command, reply item) error {
		if reply.ID != "room of "+command.ID {
			w.Errorf("the undo got the command %v and the reply %v", command, reply)
		}
		return h.request(key, -1)
	}))
	bookStep := saga.Request[order, item, item]{Name: "book", Step: book, Command: asItem, Done: func(o *order, r item) { o.Stock = r.ID }}
	s := w.register(define(bookStep, chargeStep()))
	w.runEngine()
	w.runParticipants()
	w.run("calls", []string{"rooms"}, p.Calls)

	w.start(s, order{ID: "1"})
	if r := w.ends(s, "1", saga.Completed); r.Data.Stock != "room of 1" {
		w.Errorf("the data are %+v", r.Data)
	}
	if h.has(w, 1, 2); h.requests[0] != h.requests[1] {
		w.Errorf("the keys of two attempts are %q", h.requests)
	}

	w.onDo("charge", func(Tx, *postrider.Message) error { return saga.Refuse("limit", errNo) })
	w.start(s, order{ID: "2"})
	w.ends(s, "2", saga.Compensated)
	h.has(w, 1, 4) // another one is booked, and given back
	w.start(s, order{ID: "none"})
	if r := w.ends(s, "none", saga.Compensated); r.Cause.Reason != "booked out" {
		w.Errorf("cause %+v", r.Cause)
	}
}
