package storetest

import (
	"time"

	"github.com/postrider/postrider/store"
)

var retentionTests = []test{
	{name: "UndeliveredIsNeverDropped", run: undeliveredIsKept},
	{name: "TheSlowestRelayDecides", run: slowestRelayDecides},
	{name: "ALogWithoutRelaysIsKept", run: logWithoutRelays},
	{name: "OpenTransactionsAreKept", run: openTransactionsAreKept, late: true},
	{name: "ParkedAndDeadOutliveTheLog", run: parkedOutliveTheLog},
	{name: "DeliveredIsKeptForItsTime", run: deliveredIsKept},
	{name: "DeliveredIsDroppedWhenItsTimeIsOver", run: deliveredIsDropped, exact: true},
	{name: "SizeLimitDropsTheOldestDelivered", run: sizeLimit, exact: true},
}

func (e *env) maintain(keep store.Retention) store.Maintained {
	e.t.Helper()
	m, err := e.Maintain(e.ctx, keep)
	e.must(err, "maintain")
	return m
}

// logged returns what is still in the log, as a new relay reads it.
func (e *env) logged(name string) []string {
	e.t.Helper()
	return recordIDs(e.worker(name, "reader").drain())
}

func undeliveredIsKept(e *env) {
	w := e.worker("r", "a")
	e.publishKeys("order/1", "order/2")
	w.drain()
	w.settleRead()
	want := e.publishKeys("order/1", "order/2", "", "")
	w.drain() // fetched, not settled
	for range 3 {
		e.maintain(store.Retention{MaxBytes: 1})
	}
	got := w.takeOver("b").drain()
	e.wantSet("fetched after maintenance", recordIDs(got), want)
}

func slowestRelayDecides(e *env) {
	fast, slow := e.worker("fast", "a"), e.worker("slow", "a")
	want := e.publishKeys("order/1", "order/2", "order/3", "", "", "")
	fast.drain()
	fast.settleRead()
	e.must(e.Leave(e.ctx, "slow", slow.owner), "leave") // a relay that is down counts too
	e.maintain(store.Retention{})
	e.wantSet("fetched by the slow relay", recordIDs(e.worker("slow", "b").drain()), want)
}

func logWithoutRelays(e *env) {
	want := e.publishKeys("order/1", "order/2", "")
	e.maintain(store.Retention{})
	e.wantSet("fetched by the first relay", e.logged("r"), want)
}

func openTransactionsAreKept(e *env) {
	w := e.worker("r", "a")
	tx := e.open()
	late := e.messages("order/1", 3)
	e.insert(tx, late...)
	e.publishKeys("order/1", "order/2", "order/3")
	w.drain()
	w.settleRead()
	e.maintain(store.Retention{})
	e.commit(tx)
	e.maintain(store.Retention{})
	e.wantIDs("fetched late", recordIDs(w.drain()), ids(late))
}

func parkedOutliveTheLog(e *env) {
	w := e.worker("r", "a")
	dead := w.deadLetter("rejected", e.message("order/2"))
	records := w.hold("order/1", 2, 0)
	w.settleRead()
	e.maintain(store.Retention{})
	w = w.takeOver("b")
	w.wantRun("order/1", records)
	e.wantIDs("dead letters", e.deadIDs(store.DeadFilter{}), dead)
	e.redrive(store.DeadFilter{}, 1)
	if due := w.due(); len(due.Runs) != 2 {
		e.t.Errorf("due after the redrive: %+v, want the held key and the redriven message", due.Runs)
	}
}

func deliveredIsKept(e *env) {
	w := e.worker("r", "a")
	want := e.publishKeys("order/1", "order/2", "")
	w.drain()
	w.settleRead()
	if m := e.maintain(store.Retention{For: time.Hour}); m.Dropped != 0 {
		e.t.Errorf("%d messages were dropped, kept for an hour", m.Dropped)
	}
	e.wantSet("in the log", e.logged("later"), want)
}

func deliveredIsDropped(e *env) {
	w := e.worker("r", "a")
	e.publishKeys("order/1", "order/2", "", "")
	w.drain()
	w.settleRead()
	left := e.publishKeys("order/1", "")
	if m := e.maintain(store.Retention{}); m.Dropped != 4 {
		e.t.Errorf("%d messages were dropped, want 4", m.Dropped)
	}
	e.wantSet("in the log", e.logged("later"), left)
	e.wantSet("fetched on", recordIDs(w.drain()), left)
}

func sizeLimit(e *env) {
	key := e.keysOf(0, 1)[0]
	w := e.worker("r", "a")
	msgs := e.messages(key, 10)
	want := e.publish(msgs...)
	w.drain()
	w.settleRead()
	size := int64(msgs[0].Size())
	e.maintain(store.Retention{For: time.Hour, MaxBytes: 4 * size})
	got := e.logged("later")
	if len(got) == 0 || len(got) > 4 {
		e.t.Fatalf("%d messages of %d bytes are left, the limit is %d bytes", len(got), size, 4*size)
	}
	e.wantIDs("left", got, want[len(want)-len(got):])
}
