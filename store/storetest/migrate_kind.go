package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postrider/postrider/store"
)

// OldConsumerPosition is the position of consumers' cursors in the schema before kinds.
const OldConsumerPosition = 9223372036854775806

// KindMigration is what MigrateKinds needs to know of a store.
type KindMigration[Tx any] struct {
	// Down migrates the database of a store to the version before the migration, Up to the newest.
	Down, Up func(t testing.TB, s Store[Tx])
	// Begin registers a name in 4 partitions, with cursors at a position, as a program of the version before does.
	Begin func(t testing.TB, s Store[Tx], name string, position int64)
	// Consumers returns, in order, the names that a program of the version before takes for consumers.
	Consumers func(t testing.TB, s Store[Tx]) []string
}

// MigrateKinds tests the migration that stores whether a name is a relay's or a consumer's, with data in both directions.
func MigrateKinds[Tx any](t *testing.T, f Features, h Harness[Tx], m KindMigration[Tx]) {
	s := newSuite(f, h)
	s.run(t, inboxTest[Tx]{run: func(e *inboxEnv[Tx]) { migrateKinds(e, m) }}.erase())
}

func migrateKinds[Tx any](e *inboxEnv[Tx], m KindMigration[Tx]) {
	old := e.database.(*erased[Tx]).Store
	migrate := func(to func(testing.TB, Store[Tx])) {
		e.t.Helper()
		to(e.t, old)
	}
	e.fillKinds()
	before := e.describeKinds()

	migrate(m.Down)
	e.wantIDs("consumers of the version before", m.Consumers(e.t, old), []string{"c"})
	m.Begin(e.t, old, "old-c", OldConsumerPosition)
	m.Begin(e.t, old, "old-r", 0)
	migrate(m.Up)
	e.renew()
	if after := e.describeKinds(); !slices.Equal(after, before) {
		e.t.Errorf("after the migration:\n%q\nbefore:\n%q", after, before)
	}
	e.wantKind("old-c", store.KindConsumer)
	e.wantKind("old-r", store.KindRelay)
	e.must(e.store.Enroll(e.ctx, "old-c"), "enroll a consumer of the version before")
	if err := e.store.Enroll(e.ctx, "old-r"); !errors.Is(err, store.ErrNameOfRelay) {
		e.t.Errorf("enroll under the name of a relay of the version before: %v, want store.ErrNameOfRelay", err)
	}
	if _, err := e.acquireAs(store.KindRelay, "old-c", "a"); !errors.Is(err, store.ErrNameOfConsumer) {
		e.t.Errorf("acquire for a relay under the name of a consumer of the version before: %v, want store.ErrNameOfConsumer", err)
	}
	e.must(e.store.Enroll(e.ctx, "new-c"), "enroll a new consumer")
	e.useKinds()

	before = e.describeKinds()
	migrate(m.Down)
	e.wantIDs("consumers after the way down", m.Consumers(e.t, old), []string{"c", "new-c", "old-c"})
	migrate(m.Up)
	e.renew()
	if after := e.describeKinds(); !slices.Equal(after, before) {
		e.t.Errorf("after the second migration:\n%q\nbefore:\n%q", after, before)
	}
	e.wantKind("new-c", store.KindConsumer)
	e.useKinds()
}

// renew opens the store again, as a program that starts does.
func (e *inboxEnv[Tx]) renew() {
	e.t.Helper()
	e.database = e.reopen(e.t)
	opened := e.database.(*erased[Tx]).Store
	e.store, e.insert = opened.(store.Inbox[Tx]), opened.Insert
}

// fillKinds gives relay r and consumer c parked messages, held keys and dead letters. Relay r has delivered something, and has
// something left.
func (e *inboxEnv[Tx]) fillKinds() {
	e.t.Helper()
	r := e.worker("r", "a")
	r.hold("order/1", 2, time.Hour)
	r.deadLetter("rejected", e.message("order/2"), e.message(""))
	e.publishKeys("order/3", "order/4")
	r.deliver()
	e.publishKeys("order/5")
	r.leave()
	c := e.consumer("c")
	e.parkHead("c", time.Hour, e.message("order/1"))
	e.park("c", store.ParkHeld, 0, e.message("order/1"))
	e.park("c", store.ParkRetry, time.Hour, e.message(""))
	e.deadLetter("c", true, store.ParkRequest{Message: e.message("order/6"), Dead: &store.DeadRequest{Reason: "refused"}})
	e.deadLetter("c", false, store.ParkRequest{Message: e.message(""), Dead: &store.DeadRequest{Reason: "refused"}})
	for p := range e.partitions {
		c.settle(store.Settlement{Partition: p, FailedCount: 1})
	}
	c.leave()
}

// describeKinds describes r and c.
func (e *inboxEnv[Tx]) describeKinds() (out []string) {
	e.t.Helper()
	for _, name := range []string{"r", "c"} {
		st := e.status(name)
		out = append(out, fmt.Sprint(name, st.Kind, st.Topics, st.Backlog, st.Parked, st.Held, st.Dead, st.Delivered, st.Failed))
		for _, p := range st.Partitions {
			out = append(out, fmt.Sprint(name, p.Partition, p.Settlements, p.Position, p.Backlog))
		}
		out = append(out, fmt.Sprint(name, e.held(name)))
	}
	for _, d := range e.deadLetters(store.DeadFilter{State: store.DeadAny}) {
		out = append(out, fmt.Sprint(d.Relay, d.Side, d.Message.ID, d.State))
	}
	return out
}

// useKinds publishes and parks another message, and has r and c work on everything.
func (e *inboxEnv[Tx]) useKinds() {
	e.t.Helper()
	fresh := e.publishKeys("order/7")
	r := e.worker("r", "b")
	if got := recordIDs(r.drain()); !slices.Contains(got, fresh[0]) || slices.Contains(got, "m-000001") {
		e.t.Errorf("relay r has read %v, want the rest of the log with %v", got, fresh)
	}
	r.settleRead()
	c := e.worker("c", "b")
	for p, l := range c.leases {
		if l.Cursor != (store.Cursor{}) || l.Settled == 0 || len(l.Parked.Sequences) > 0 {
			e.t.Errorf("lease of consumer c in partition %d: %+v", p, l)
		}
	}
	e.must(e.store.Enroll(e.ctx, "c"), "enroll again")
	m := e.message("")
	e.park("c", store.ParkRetry, 0, m)
	taken := false
	for _, run := range c.due().Runs {
		if run.Key == "" && run.Entries[0].Message.ID == m.ID {
			e.inTx(func(tx Tx) { taken = e.take(tx, "c", run.Entries[0].Message) })
		}
	}
	if !taken {
		e.t.Error("the parked message is not due, or cannot be taken")
	}
	e.must(e.retry("c", "order/1"), "retry a held key of consumer c")
	if len(c.dueIDs()) == 0 {
		e.t.Error("the held key of consumer c is not due")
	}
	r.leave()
	c.leave()
}
