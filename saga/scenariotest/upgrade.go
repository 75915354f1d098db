package scenariotest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
)

// Release is a release of Postrider whose programs run alongside those of this one during an upgrade.
type Release[Tx any] struct {
	// Migrate brings the schema of a store to that of the release, or back to that of this one.
	Migrate func(t testing.TB, s Store[Tx], old bool)
	// Records are those of the release's participants.
	Records func(s Store[Tx]) saga.Records[Tx]
}

// RollingUpgrade upgrades a participant that makes calls, in the documented order: the schema is migrated while an old program runs, a new
// one starts alongside, and the old one is stopped. Then it is rolled back, with the new schema, and upgraded again. The new program also
// has a new version of the command. Each program takes over calls that the other has begun and of which nobody knows how they ended: it
// repeats them, with their keys and data, for the command and for the undo.
func RollingUpgrade[Tx any](t *testing.T, k Kit[Tx], release Release[Tx]) {
	const n = 6
	w := newWorld(t, k)
	u := &upgrade[Tx]{world: w, inn: inn{guests: make(map[int]*guest), lose: true}}
	u.saga = w.register(define(saga.Request[order, item, item]{
		Name: "book", Step: book, Command: asItem, Done: func(o *order, r item) { o.Stock = r.ID },
	}))
	w.runEngine()
	u.runOld(release.Records(w.store))
	release.Migrate(t, w.store, true)
	u.start(n)

	release.Migrate(t, w.store, false)
	u.runNew()
	u.start(n) // by either program
	w.stop["old"]()
	u.until("the new program repeats calls of the old one", func() bool { return u.took("new", 0) })
	u.start(n)

	u.runOld(release.Records(w.store)) // roll back
	w.stop["new"]()
	for i := 1; i < u.started; i += 2 {
		if refused := w.operate(strconv.Itoa(i), saga.Operation{Verb: saga.Cancel}); refused != "" {
			w.Errorf("cancel was refused: %s", refused)
		}
	}
	u.until("the old program repeats calls of the new one", func() bool { return u.took("old", 0) && u.took("old", 1) })

	u.runNew()
	w.stop["old"]()
	u.until("the new program repeats calls of the old one for their undos", func() bool { return u.took("new", 1) })
	u.alone(func() bool { u.lose = false; return true })
	for i := range u.started {
		w.ends(u.saga, strconv.Itoa(i), map[int]saga.Status{0: saga.Completed, 1: saga.Compensated}[i%2])
	}
	u.wantBooked()
}

// stay is version 2 of the command of the step book.
type stay struct {
	Guest string `json:"guest"`
}

var bookStay = saga.DefineStep[stay, item]("room.book").WithTopic("rooms").WithSchemaVersion(2)

// upgrade is a participant's upgrade.
type upgrade[Tx any] struct {
	*world[Tx]
	saga    *saga.Saga[Tx, order]
	started int
	inn
}

// inn is a remote service that knows idempotency keys. Half of its guests are odd.
type inn struct {
	mu     sync.Mutex
	guests map[int]*guest
	lose   bool // all answers; the first one to an odd guest so that the command is a dead letter
	faults []string
}

type guest struct {
	key    string
	booked bool
	by     []string // kinds of programs that have asked
}

// book is the request of a kind of program for a guest.
func (i *inn) book(kind, key, name string) (item, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	number, err := strconv.Atoi(name)
	if err != nil {
		i.faults = append(i.faults, fmt.Sprintf("a %s program books for %q", kind, name))
		return item{}, err
	}
	g := i.guests[number]
	first := g == nil
	if first {
		g = &guest{key: key, booked: true}
		i.guests[number] = g
	}
	g.by = append(g.by, kind)
	if g.key != key {
		i.faults = append(i.faults, fmt.Sprintf("guest %d has the keys %s and %s", number, g.key, key))
	}
	lost := errors.New("the connection broke")
	switch {
	case i.lose && first && number%2 == 1:
		return item{}, postrider.Dead("lost", lost)
	case i.lose:
		return item{}, lost
	default:
		return item{"room of " + name}, nil
	}
}

// giveBack undoes a booking.
func (i *inn) giveBack(kind, name string, reply item) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	number, err := strconv.Atoi(name)
	if err != nil || reply.ID != "room of "+name || !i.guests[number].booked {
		i.faults = append(i.faults, fmt.Sprintf("a %s program gives back %q of guest %q", kind, reply.ID, name))
		return nil
	}
	i.guests[number].booked = false
	return nil
}

// took says whether a kind of program has repeated a call of the other kind for an odd or even guest.
func (i *inn) took(kind string, odd int) bool {
	for number, g := range i.guests {
		if number%2 == odd && g.by[0] != kind && g.by[len(g.by)-1] == kind {
			return true
		}
	}
	return false
}

// alone calls f while nobody asks.
func (i *inn) alone(f func() bool) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return f()
}

func (u *upgrade[Tx]) until(what string, is func() bool) {
	u.Helper()
	u.await(what, func() bool { return u.alone(func() bool { return is() || len(u.faults) > 0 }) })
	if u.alone(func() bool { return len(u.faults) > 0 }) {
		u.Fatalf("while it waited until %s: %q", what, u.faults)
	}
}

// start starts instances with the next numbers, and waits until a call has begun for each.
func (u *upgrade[Tx]) start(n int) {
	for range n {
		u.world.start(u.saga, order{ID: strconv.Itoa(u.started)})
		u.started++
	}
	u.until("all calls have begun", func() bool { return len(u.guests) == u.started })
}

// wantBooked checks that each guest that is not odd has a room, and nobody else.
func (u *upgrade[Tx]) wantBooked() {
	u.inn.mu.Lock()
	defer u.inn.mu.Unlock()
	for number, g := range u.guests {
		if g.booked != (number%2 == 0) {
			u.Errorf("guest %d has a room: %t; asked by %q", number, g.booked, g.by)
		}
	}
	if len(u.guests) != u.started || len(u.faults) > 0 {
		u.Errorf("%d guests of %d; faults: %q", len(u.guests), u.started, u.faults)
	}
}

func (u *upgrade[Tx]) runNew() {
	p := participantOf(u, "new", u.store, bookStay, func(s stay) string { return s.Guest })
	u.must(saga.Upcast(p, book, bookStay, func(i item) (stay, error) { return stay{i.ID}, nil }))
	u.runCalls("new", p)
}

func (u *upgrade[Tx]) runOld(records saga.Records[Tx]) {
	u.runCalls("old", participantOf(u, "old", records, book, func(i item) string { return i.ID }))
}

func participantOf[Tx, C any](u *upgrade[Tx], kind string, records saga.Records[Tx], s saga.StepDefinition[C, item], name func(C) string) *saga.Participant[Tx] {
	p, err := saga.NewParticipant(records, u.box, saga.ParticipantConfig{Name: "rooms", Logger: quiet})
	u.must(err)
	u.must(saga.HandleCall(p, s,
		func(_ context.Context, key string, m postrider.Typed[C]) (item, error) {
			return u.book(kind, key, name(m.Data))
		},
		func(_ context.Context, _ string, command C, reply item) error {
			return u.giveBack(kind, name(command), reply)
		}))
	return p
}

// runCalls runs a program that tries each call until it is answered.
func (u *upgrade[Tx]) runCalls(name string, p *saga.Participant[Tx]) {
	c := relayConfig("calls", []string{"rooms"})
	c.MaxAttempts, c.BackoffMax = 1_000_000, 50*time.Millisecond
	r, err := relay.New(u.store, c)
	u.must(err)
	u.must(p.Calls(r))
	u.keepRunning(name, r.Run)
}
