package storetest

import (
	"reflect"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

var statusTests = []test{
	{name: "EmptyOutbox", run: statusOfEmpty},
	{name: "NumbersFollowWhatHappens", run: statusNumbers},
	{name: "LateRowsCountAsBacklog", run: statusLate, late: true},
	{name: "CountsStopAtTheirLimit", run: statusLimit, partitions: 2},
	{name: "SizesAreOfTheTables", run: statusSizes},
	{name: "OwnersAndLeasesAreShown", run: statusOwners},
	{name: "DestinationIsShownAsOfTheLastHeartbeat", run: statusDestination},
	{name: "OldestUndeliveredLeavesOutDelayed", run: statusUndelivered},
}

// status returns the status of one relay, and waits for a relay that is just starting.
func (e *env) status(name string) (out store.RelayStatus) {
	e.t.Helper()
	e.until("relay "+name+" is known", func() bool {
		st, err := e.Status(e.ctx)
		e.must(err, "status")
		for _, r := range st.Relays {
			if r.Name == name {
				out = r
				return true
			}
		}
		return false
	})
	return out
}

func statusOfEmpty(e *env) {
	st, err := e.Status(e.ctx)
	e.must(err, "status")
	if st.Partitions != e.partitions || len(st.Relays) != 0 || time.Since(st.Now).Abs() > time.Minute {
		e.t.Errorf("status of an outbox without relays: %+v", st)
	}
	e.worker("r", "a")
	r := e.status("r")
	if r.Backlog != (store.Count{}) || r.Parked != (store.Count{}) || r.Held != (store.Count{}) || r.Dead != (store.Count{}) ||
		r.Age != 0 || r.OldestParked != 0 || r.OldestDead != 0 || len(r.Partitions) != e.partitions {
		e.t.Errorf("status of a relay of an empty outbox: %+v", r)
	}
}

func statusNumbers(e *env) {
	w := e.worker("r", "a")
	expect := func(when string, backlog, parked, held, dead int64) {
		e.t.Helper()
		r := e.status("r")
		if r.Backlog.N != backlog || r.Parked.N != parked || r.Held.N != held || r.Dead.N != dead {
			e.t.Errorf("%s: backlog %d, parked %d, held %d, dead %d; want %d, %d, %d, %d",
				when, r.Backlog.N, r.Parked.N, r.Held.N, r.Dead.N, backlog, parked, held, dead)
		}
		sum, oldest := int64(0), time.Duration(0)
		for _, p := range r.Partitions {
			sum, oldest = sum+p.Backlog.N, max(oldest, p.Age)
		}
		if sum != r.Backlog.N || oldest != r.Age || (r.Age > 0) != (backlog > 0) || (r.OldestParked > 0) != (parked > 0) || (r.OldestDead > 0) != (dead > 0) {
			e.t.Errorf("%s: numbers do not fit together: %+v", when, r)
		}
	}
	pass := func() { e.clockMoves(5 * time.Millisecond) }
	tx := e.open()
	e.insert(tx, e.message("order/1"))
	e.must(tx.rollback(e.ctx), "rollback")
	expect("after a rollback", 0, 0, 0, 0)
	e.publishKeys("order/1", "order/2", "", "")
	pass()
	expect("published", 4, 0, 0, 0)
	w.drain()
	expect("fetched", 4, 0, 0, 0)
	w.settleRead()
	expect("settled", 0, 0, 0, 0)
	w.hold("order/1", 3, time.Hour)
	pass()
	expect("one key held", 0, 3, 1, 0)
	w.deadLetter("rejected", e.message("order/2"), e.message(""))
	pass()
	expect("two dead", 0, 3, 1, 2)
	e.must(e.skip("r", "order/1", "why"), "skip")
	pass()
	expect("head skipped", 0, 2, 1, 2)
	e.redrive(everyOpen, 2)
	pass()
	expect("both redriven", 0, 4, 1, 0)
	if n := w.deadLetter("rejected", e.message("order/3")); len(n) != 1 || e.status("r").Dead.N != 1 {
		e.t.Errorf("one more died: %+v", e.status("r"))
	}
}

func statusLate(e *env) {
	w := e.worker("r", "a")
	tx := e.open()
	e.insert(tx, e.messages("order/1", 3)...)
	e.publishKeys("order/1", "order/2")
	w.drain()
	w.settleRead()
	if r := e.status("r"); r.Backlog.N != 0 {
		e.t.Errorf("backlog %d while a transaction is open", r.Backlog.N)
	}
	e.commit(tx)
	if r := e.status("r"); r.Backlog.N != 3 {
		e.t.Errorf("backlog %d after a late commit of 3", r.Backlog.N)
	}
}

func statusLimit(e *env) {
	w := e.worker("r", "a")
	const n = store.CountLimit + 2_000
	key := e.keysOf(1, 1)[0]
	for range n / 2_000 {
		e.publish(e.messages(key, 2_000)...)
	}
	want := store.Count{N: store.CountLimit, AtLeast: true}
	if r := e.status("r"); r.Backlog != want || r.Partitions[1].Backlog != want {
		e.t.Errorf("backlog of %d counts as %+v, in its partition as %+v; want %+v", n, r.Backlog, r.Partitions[1].Backlog, want)
	}
	st := store.Settlement{Partition: 1, Moved: true}
	for _, r := range w.drain() {
		st.Parked = append(st.Parked, store.ParkOutcome{Sequence: r.Message.Sequence, Key: key, FromLog: true, Waits: true, Reason: store.ParkHeld})
	}
	st.Cursor = w.read[1]
	st.Held = []store.HeldKey{{Key: key, Sequence: st.Parked[0].Sequence, Reason: store.ParkRetry}}
	w.settle(st)
	if r := e.status("r"); r.Parked != want || r.Backlog.N != 0 {
		e.t.Errorf("%d parked count as %+v; want %+v", n, r.Parked, want)
	}
	if h := e.held("r"); len(h) != 1 || h[0].Parked != store.CountLimit {
		e.t.Errorf("held keys: %+v; want one with parked counted up to %d", h, store.CountLimit)
	}
}

func statusSizes(e *env) {
	e.publish(e.messages(e.keysOf(0, 1)[0], 10)...)
	st, err := e.Status(e.ctx)
	e.must(err, "status")
	if e.suite.features.NoTables {
		return
	}
	log := int64(0)
	for i, t := range st.Tables {
		if t.Table == "log" || t.Table == store.TableFile {
			log += t.Bytes
		}
		if i > 0 && t.Bytes > st.Tables[i-1].Bytes {
			e.t.Errorf("the largest table is not the first: %+v", st.Tables)
		}
	}
	if log == 0 {
		e.t.Errorf("the size of the log is missing: %+v", st.Tables)
	}
}

func statusOwners(e *env) {
	o := store.Owner{ID: "host-1", Host: "host.example.org", Version: "v1.2.3"}
	_, err := e.Heartbeat(e.ctx, "r", o, longTTL)
	e.must(err, "heartbeat")
	_, err = e.Acquire(e.ctx, "r", o, store.AcquireRequest{Claims: claims(0, 2), TTL: longTTL})
	e.must(err, "acquire")
	_, err = e.Heartbeat(e.ctx, "r", owner("gone"), shortTTL)
	e.must(err, "heartbeat")
	e.until("end of the second owner", func() bool {
		for _, o := range e.status("r").Owners {
			if o.ID == "gone" {
				return !o.Alive
			}
		}
		return false
	})
	r := e.status("r")
	if len(r.Owners) != 2 || len(r.Partitions) != e.partitions {
		e.t.Fatalf("owners %+v and partitions %+v, want two and %d", r.Owners, r.Partitions, e.partitions)
	}
	for _, got := range r.Owners {
		if time.Since(got.Started).Abs() > time.Minute || got.SeenAgo < 0 || got.Alive != (got.ID == "host-1") {
			e.t.Errorf("owner is shown as %+v", got)
		}
		if got.ID == "host-1" && !reflect.DeepEqual(got.Owner, o) {
			e.t.Errorf("owner is shown as %+v, want %+v", got.Owner, o)
		}
	}
	for i, p := range r.Partitions {
		held := i%2 == 0
		if p.Partition != i || held != (p.Owner == o.ID) || held != (p.LeaseLeft > 0) || p.LeaseLeft > longTTL || p.Settlements != 0 || p.SettledAgo < 0 {
			e.t.Errorf("partition %d is shown as %+v", i, p)
		}
	}
}

func statusDestination(e *env) {
	o := owner("a")
	down := store.Destination{State: store.DestinationDown, For: time.Hour, Error: "no route to host \x00\xff", NextTry: time.Minute}
	o.Destination = down
	heartbeat := func() {
		_, err := e.Heartbeat(e.ctx, "r", o, longTTL)
		e.must(err, "heartbeat")
	}
	heartbeat()
	_, err := e.Acquire(e.ctx, "r", owner("a"), store.AcquireRequest{Claims: claims(0), TTL: longTTL})
	e.must(err, "acquire")
	e.clockMoves(5 * time.Millisecond)
	shown := func() store.Destination {
		r := e.status("r")
		return r.DestinationOf()
	}
	got := shown()
	if got.State != down.State || got.For <= time.Hour || got.For > 2*time.Hour || got.NextTry >= time.Minute || got.Error != "no route to host \x00" {
		e.t.Errorf("destination is shown as %+v, want %+v, a little later", got, down)
	}
	other := owner("b")
	other.Destination = store.Destination{State: store.DestinationUp, For: time.Second}
	_, err = e.Heartbeat(e.ctx, "r", other, longTTL)
	e.must(err, "heartbeat")
	if got := shown(); got.State != store.DestinationUp {
		e.t.Errorf("destination is shown as %+v; another process reaches it", got)
	}
	e.must(e.Leave(e.ctx, "r", other), "leave")
	if got := shown(); got.State != store.DestinationDown {
		e.t.Errorf("destination is shown as %+v; the process that reached it has ended", got)
	}
	o.Destination = store.Destination{}
	o.Gate = store.Gate{Closed: true, On: "payment.charge", For: time.Hour, NextTry: time.Minute}
	heartbeat()
	if got := shown(); got != (store.Destination{}) {
		e.t.Errorf("destination is shown as %+v; nobody knows", got)
	}
	gate := func() store.Gate {
		r := e.status("r")
		return r.GateOf()
	}
	if got := gate(); !got.Closed || got.On != o.Gate.On || got.For < time.Hour || got.For > 2*time.Hour || got.NextTry > time.Minute {
		e.t.Errorf("gate is shown as %+v, want %+v, a little later", got, o.Gate)
	}
	other.Destination = store.Destination{}
	_, err = e.Heartbeat(e.ctx, "r", other, longTTL)
	e.must(err, "heartbeat")
	if got := gate(); got.Closed {
		e.t.Errorf("gate is shown as %+v; that of another process is open", got)
	}
}

func statusUndelivered(e *env) {
	w := e.worker("r", "a")
	e.publishKeys("order/1", "")
	e.clockMoves(5 * time.Millisecond)
	if r := e.status("r"); r.OldestUndelivered <= 0 || r.OldestUndelivered != r.Age {
		e.t.Errorf("oldest undelivered %s, want the age of the backlog, %s", r.OldestUndelivered, r.Age)
	}
	for _, entry := range w.drain() {
		m := entry.Message
		partition := postrider.PartitionOf(m.Key, m.ID, e.partitions)
		st := store.Settlement{Partition: partition, Cursor: w.read[partition], Moved: true, Parked: []store.ParkOutcome{
			{Sequence: m.Sequence, FromLog: true, Reason: store.ParkDelayed, After: time.Hour}}}
		if m.Key != "" {
			st.Parked[0] = store.ParkOutcome{Sequence: m.Sequence, Key: m.Key, FromLog: true, Reason: store.ParkRetry, Waits: true}
			st.Held = []store.HeldKey{{Key: m.Key, Sequence: m.Sequence, Reason: store.ParkRetry, After: time.Hour}}
		}
		w.settle(st)
	}
	e.clockMoves(5 * time.Millisecond)
	r := e.status("r")
	if r.OldestHeld <= 0 || r.OldestUndelivered < r.OldestHeld || r.OldestUndelivered > r.OldestParked {
		e.t.Errorf("one held, one delayed: %+v", r)
	}
	e.must(e.skip("r", "order/1", "why"), "skip")
	if r := e.status("r"); r.OldestUndelivered != 0 || r.OldestParked <= 0 {
		e.t.Errorf("one delayed: undelivered for %s, parked for %s", r.OldestUndelivered, r.OldestParked)
	}
}
