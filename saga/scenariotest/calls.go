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
	loseAll  bool
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
	if lost || h.loseAll {
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
	s := w.runHotel(h)
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

// callUnknown: all answers to a call are lost until its command is a dead letter. Its undo finds out that a room is booked, and gives it back.
func callUnknown[Tx any](w *world[Tx]) {
	h := &hotel{loseAll: true}
	s := w.runHotel(h)
	w.start(s, order{ID: "1"})
	w.dead("calls")
	h.has(w, 1, 3)
	h.mu.Lock()
	h.loseAll = false
	h.mu.Unlock()
	if refused := w.operate("1", saga.Operation{Verb: saga.Cancel}); refused != "" {
		w.Errorf("cancel was refused: %s", refused)
	}
	w.ends(s, "1", saga.Compensated)
	h.has(w, 0, 5)
	if len(h.requests) == 5 && h.requests[0] != h.requests[3] {
		w.Errorf("the keys of the requests are %q, want those of all attempts alike", h.requests)
	}
}

// runHotel runs the engine of a saga that books a room by a call and charges a card, and its participants.
func (w *world[Tx]) runHotel(h *hotel) *saga.Saga[Tx, order] {
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
	return s
}
