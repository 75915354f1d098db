package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

func kindTests[Tx any]() []inboxTest[Tx] {
	return []inboxTest[Tx]{
		{name: "NameHasOneKind", run: nameHasOneKind[Tx]},
		{name: "RemovedNameCanBeOfTheOtherKind", run: removedNameIsFree[Tx], statements: true},
		{name: "StatusSaysTheKind", run: statusSaysKind[Tx]},
		{name: "ConsumerHasNoCursor", run: consumerHasNoCursor[Tx]},
		{name: "ConsumerDoesNotKeepTheLog", run: consumerKeepsNoLog[Tx]},
		{name: "ConsumersAloneLeaveTheLog", run: consumersLeaveLog[Tx], statements: true},
		{name: "ConsumerTakesNoTopics", run: consumerTakesNoTopics[Tx]},
		{name: "RepartitionKeepsKinds", run: kindsAreRepartitioned[Tx], statements: true},
		{name: "RemovedConsumerLeavesNothing", run: removedLeavesNothing[Tx], statements: true},
	}
}

// acquireAs leases what is free of a name, for a program that works for one kind.
func (e *inboxEnv[Tx]) acquireAs(kind store.Kind, name, id string) ([]store.Lease, error) {
	return e.Acquire(e.ctx, name, owner(id), store.AcquireRequest{Kind: kind, Claims: claims(e.allPartitions()...), TTL: longTTL})
}

func (e *inboxEnv[Tx]) wantKind(name string, want store.Kind) {
	e.t.Helper()
	if st := e.status(name); st.Kind != want {
		e.t.Errorf("kind of %s: %q, want %q", name, st.Kind, want)
	}
}

func nameHasOneKind[Tx any](e *inboxEnv[Tx]) {
	_, err := e.acquireAs(store.KindRelay, "r", "a")
	e.must(err, "acquire for a relay")
	e.must(e.store.Enroll(e.ctx, "c"), "enroll")
	_, err = e.acquireAs(store.KindConsumer, "d", "a") // it was removed since it enrolled
	e.must(err, "acquire for a consumer")
	for _, again := range []bool{false, true} {
		if err := e.store.Enroll(e.ctx, "r"); !errors.Is(err, store.ErrNameOfRelay) {
			e.t.Errorf("enroll under the name of a relay, again %t: %v, want store.ErrNameOfRelay", again, err)
		}
		if got, err := e.acquireAs(store.KindConsumer, "r", "a"); !errors.Is(err, store.ErrNameOfRelay) || len(got) > 0 {
			e.t.Errorf("acquire for a consumer under the name of a relay, again %t: %v, %v, want store.ErrNameOfRelay", again, got, err)
		}
		for _, name := range []string{"c", "d"} {
			if got, err := e.acquireAs(store.KindRelay, name, "b"); !errors.Is(err, store.ErrNameOfConsumer) || len(got) > 0 {
				e.t.Errorf("acquire for a relay under the name of consumer %s, again %t: %v, %v, want store.ErrNameOfConsumer", name, again, got, err)
			}
			e.must(e.store.Enroll(e.ctx, name), "enroll again")
		}
	}
	for name, kind := range map[string]store.Kind{"r": store.KindRelay, "c": store.KindConsumer} {
		e.must(e.Leave(e.ctx, name, owner("a")), "leave")
		if got, err := e.acquireAs("", name, "operator"); err != nil || len(got) != e.partitions {
			e.t.Errorf("an operator acquired %d leases of %s, %v", len(got), name, err)
		}
		e.wantKind(name, kind)
	}
	e.wantKind("d", store.KindConsumer)
}

func removedNameIsFree[Tx any](e *inboxEnv[Tx]) {
	other := e.reopen(e.t)
	first := e.publish(e.messages("order/1", 2)...)
	for range 2 {
		w := e.worker("x", "a")
		e.wantKind("x", store.KindRelay)
		e.wantIDs("read by a relay", recordIDs(w.drain()), first)
		w.leave()
		_, err := held.New(other).RemoveRelay(e.ctx, "x", "olga", "the name is for a consumer", false)
		e.must(err, "remove")
		w = e.consumer("x")
		e.wantKind("x", store.KindConsumer)
		w.leave()
		_, err = held.New(other).RemoveRelay(e.ctx, "x", "olga", "the name is for a relay", false)
		e.must(err, "remove")
	}
}

func statusSaysKind[Tx any](e *inboxEnv[Tx]) {
	e.consumer("c")
	e.worker("r", "a")
	_, err := e.Heartbeat(e.ctx, "announced", owner("a"), longTTL)
	e.must(err, "heartbeat")
	e.wantKind("c", store.KindConsumer)
	e.wantKind("r", store.KindRelay)
	e.wantKind("announced", store.KindRelay)
}

func consumerHasNoCursor[Tx any](e *inboxEnv[Tx]) {
	e.publish(e.messages("order/1", 3)...)
	w := e.consumer("c")
	e.publish(e.messages("order/2", 3)...)
	e.must(e.store.Enroll(e.ctx, "c"), "enroll again")
	e.parkHead("c", time.Hour, e.message("order/3"))
	e.deadLetter("c", true, store.ParkRequest{Message: e.message("order/4"), Dead: &store.DeadRequest{Reason: "refused"}})
	for p := range e.partitions {
		w.settle(store.Settlement{Partition: p, FailedCount: 1})
	}
	w = w.takeOver("b")
	keys := 0
	for p, l := range w.leases {
		if l.Cursor != (store.Cursor{}) || l.Settled != 1 || len(l.Parked.Sequences) > 0 {
			e.t.Errorf("lease of partition %d: cursor %+v, settlement %d, parked %d, want none, 1 and none", p, l.Cursor, l.Settled, l.Parked.Sequences)
		}
		keys += len(l.Parked.Keys)
	}
	if keys != 2 {
		e.t.Errorf("%d held keys with the leases, want 2", keys)
	}
	st := e.status("c")
	if st.Backlog.N != 0 || st.Age != 0 || len(st.Partitions) != e.partitions || st.Failed != int64(e.partitions) {
		e.t.Errorf("status of a consumer: %+v, want no backlog and %d failures", st, e.partitions)
	}
	for _, p := range st.Partitions {
		if p.Position != 0 || p.Backlog.N != 0 || p.Settlements != 1 {
			e.t.Errorf("status of partition %d: %+v", p.Partition, p)
		}
	}
}

func consumerKeepsNoLog[Tx any](e *inboxEnv[Tx]) {
	e.must(e.store.Enroll(e.ctx, "c"), "enroll") // and no process runs it
	r := e.worker("r", "a")
	e.publish(e.messages("order/1", 20)...)
	r.drain()
	r.settleRead()
	e.elapse(10 * time.Millisecond)
	if e.suite.features.CoarseRetention != "" {
		return
	}
	e.until("delivered messages are dropped", func() bool {
		_, err := e.Maintain(e.ctx, store.Retention{})
		e.must(err, "maintain")
		e.made++
		return len(e.worker(fmt.Sprint("probe-", e.made), "a").drain()) == 0
	})
}

// consumersLeaveLog: messages wait for the first relay although consumers have registered.
func consumersLeaveLog[Tx any](e *inboxEnv[Tx]) {
	e.consumer("c")
	want := e.publish(e.messages("order/1", 20)...)
	e.elapse(10 * time.Millisecond)
	_, err := e.Maintain(e.ctx, store.Retention{})
	e.must(err, "maintain")
	e.wantIDs("read by the first relay", recordIDs(e.worker("r", "a").drain()), want)
}

func consumerTakesNoTopics[Tx any](e *inboxEnv[Tx]) {
	e.must(e.store.Enroll(e.ctx, "c"), "enroll")
	// The process of a relay under this name registers its filter before it is refused.
	e.heartbeatOf("c", filtered("misnamed", "a"))
	v := e.heartbeatOf("r", filtered("v1", "b"))
	e.wantTopics("of the relay", v.Filter.Topics, "b")
	e.wantTopics("of others", v.Filter.Elsewhere)
	e.wantTopics("of the consumer", e.status("c").Topics)
}

func kindsAreRepartitioned[Tx any](e *inboxEnv[Tx]) {
	w := e.consumer("c")
	r := e.worker("r", "a")
	for _, n := range []int{9, 2} {
		e.publishKeys("order/1", "order/2", "")
		r.deliver()
		w.leave()
		r.leave()
		e.repartition(n)
		e.must(e.store.Enroll(e.ctx, "c"), "enroll again")
		w, r = e.worker("c", "b"), e.worker("r", "b")
		for p, l := range w.leases {
			if l.Cursor != (store.Cursor{}) {
				e.t.Errorf("cursor of a consumer in partition %d of %d: %+v", p, n, l.Cursor)
			}
		}
		e.wantKind("c", store.KindConsumer)
		e.wantKind("r", store.KindRelay)
		if st := e.status("c"); st.Backlog.N != 0 || len(st.Partitions) != n {
			e.t.Errorf("status of a consumer: %+v", st)
		}
	}
}
