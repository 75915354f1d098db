package storetest

import (
	"slices"

	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

var filterTests = []test{
	{name: "NewestFilterIsInEffect", run: newestFilter},
	{name: "NewFilterEndsTheLeasesOfOthers", run: newFilterEndsLeases},
	{name: "KnownFilterLeavesLeasesAlone", run: knownFilterLeavesLeases},
	{name: "FiltersOfOtherRelaysAreShown", run: filtersOfOthers},
	{name: "UnroutedMessagesAreCountedOnce", run: unroutedOnce},
	{name: "UnroutedMessagesOfRelaysAndPartitions", run: unroutedOfRelays},
	{name: "RemovedRelayLeavesNoFilter", run: removedFilter, statements: true},
}

// filtered returns an owner with a filter.
func filtered(id string, topics ...string) store.Owner {
	o := owner(id)
	o.Topics = topics
	return o
}

func (e *env) heartbeatOf(name string, o store.Owner) store.View {
	e.t.Helper()
	v, err := e.Heartbeat(e.ctx, name, o, longTTL)
	e.must(err, "heartbeat of "+o.ID)
	return v
}

// leaseAll leases all free partitions of relay r.
func (e *env) leaseAll(o store.Owner) []store.Lease {
	e.t.Helper()
	leases, err := e.Acquire(e.ctx, "r", o, store.AcquireRequest{Claims: claims(e.allPartitions()...), TTL: longTTL})
	e.must(err, "acquire for "+o.ID)
	return leases
}

func (e *env) wantTopics(what string, got []string, want ...string) {
	e.t.Helper()
	if !slices.Equal(got, want) {
		e.t.Errorf("topics %s: got %q, want %q", what, got, want)
	}
}

func newestFilter(e *env) {
	e.wantTopics("of the only process", e.heartbeatOf("r", filtered("v1", "a")).Filter.Topics, "a")
	e.wantTopics("with a new version", e.heartbeatOf("r", filtered("v2", "a", "b")).Filter.Topics, "a", "b")
	e.wantTopics("to an old process", e.heartbeatOf("r", filtered("v1", "a")).Filter.Topics, "a", "b")
	e.wantTopics("to an old process that has restarted", e.heartbeatOf("r", filtered("v1-again", "a")).Filter.Topics, "a", "b")
	for _, l := range e.leaseAll(filtered("v1", "a")) {
		e.wantTopics("of a lease", l.Filter.Topics, "a", "b")
	}
	e.wantTopics("in the status", e.status("r").Topics, "a", "b")
	e.must(e.Leave(e.ctx, "r", filtered("v2", "a", "b")), "leave")
	e.wantTopics("after a rollback", e.heartbeatOf("r", filtered("v1", "a")).Filter.Topics, "a")
	for _, id := range []string{"v1", "v1-again"} {
		e.must(e.Leave(e.ctx, "r", owner(id)), "leave")
	}
	if got := e.status("r").Topics; len(got) == 0 {
		e.t.Error("a relay without processes has lost its filter")
	}
	e.wantTopics("to an operator", e.heartbeatOf("r", filtered("v1", "a")).Filter.Topics, "a")
	for _, l := range e.leaseAll(owner("operator")) {
		e.wantTopics("of an operator's lease", l.Filter.Topics, "a")
	}
	e.wantTopics("after the operator", e.heartbeatOf("r", filtered("v1", "a")).Filter.Topics, "a")
}

func newFilterEndsLeases(e *env) {
	v1, v2 := filtered("v1", "a"), filtered("v2", "a", "b")
	e.heartbeatOf("r", v1)
	leases := e.leaseAll(v1)
	if len(leases) != e.partitions {
		e.t.Fatalf("leased %d of %d partitions", len(leases), e.partitions)
	}
	other, err := e.Acquire(e.ctx, "s", v1, store.AcquireRequest{Claims: claims(0), TTL: longTTL})
	e.must(err, "acquire for another relay")
	e.heartbeatOf("r", v2)
	var settlements []store.Settlement
	req := store.FetchRequest{Limit: 10, MaxBytes: 1 << 20}
	for _, l := range leases {
		settlements = append(settlements, store.Settlement{Partition: l.Partition, Token: l.Token, Number: l.Settled + 1, DeliveredCount: 1})
		req.Partitions = append(req.Partitions, store.FetchPartition{LeaseRef: l.Ref(), After: l.Cursor})
	}
	settled, err := e.Settle(e.ctx, "r", settlements)
	e.must(err, "settle")
	if len(settled.Lost) != len(leases) {
		e.t.Errorf("settlements under %d leases are lost, want all %d", len(settled.Lost), len(leases))
	}
	batches, err := e.Fetch(e.ctx, "r", req)
	e.must(err, "fetch")
	for _, b := range batches {
		if !b.Lost {
			e.t.Errorf("partition %d is still read under the old lease", b.Partition)
		}
	}
	if got := e.leaseAll(v2); len(got) != 0 {
		e.t.Errorf("the new process took %d partitions of one that is alive", len(got))
	}
	again := e.leaseAll(v1)
	if len(again) != e.partitions {
		e.t.Errorf("the old process leased %d of its %d partitions anew", len(again), e.partitions)
	}
	st := store.Settlement{Partition: 0, Token: other[0].Token, Number: 1, DeliveredCount: 1}
	if settled, err := e.Settle(e.ctx, "s", []store.Settlement{st}); err != nil || len(settled.Lost) > 0 {
		e.t.Errorf("the lease of another relay is lost: %+v, %v", settled, err)
	}
}

func knownFilterLeavesLeases(e *env) {
	e.heartbeatOf("r", filtered("v2", "a", "b"))
	e.leaseAll(filtered("v2", "a", "b"))
	e.heartbeatOf("r", filtered("v2-second", "a", "b"))
	e.heartbeatOf("r", filtered("v1", "a"))            // a new filter, of the highest generation
	e.must(e.Leave(e.ctx, "r", owner("v1")), "leave")  // and back
	e.heartbeatOf("r", filtered("v2-third", "a", "b")) // not higher than the one in effect
	leases := e.leaseAll(filtered("v2", "a", "b"))
	e.heartbeatOf("r", filtered("v2", "a", "b"))
	e.heartbeatOf("r", filtered("v2-fourth", "a", "b"))
	e.leaseAll(filtered("v2-fifth", "a", "b"))
	e.must(e.Leave(e.ctx, "r", owner("v2-fourth")), "leave")
	for _, l := range leases {
		st := store.Settlement{Partition: l.Partition, Token: l.Token, Number: l.Settled + 1, DeliveredCount: 1}
		if settled, err := e.Settle(e.ctx, "r", []store.Settlement{st}); err != nil || len(settled.Lost) > 0 {
			e.t.Errorf("the lease of partition %d is lost: %+v, %v", l.Partition, settled, err)
		}
	}
	if len(leases) != e.partitions {
		e.t.Errorf("leased %d of %d partitions", len(leases), e.partitions)
	}
}

func filtersOfOthers(e *env) {
	e.heartbeatOf("r", filtered("x", "a"))
	e.heartbeatOf("s", filtered("y", "b", "c*"))
	v := e.heartbeatOf("t", filtered("z", "d"))
	e.wantTopics("of the relay", v.Filter.Topics, "d")
	e.wantTopics("of the others", v.Filter.Elsewhere, "a", "b", "c*")
	e.worker("older", "w") // a program of an older release has no filter
	e.wantTopics("of the others with an older one", e.heartbeatOf("t", filtered("z", "d")).Filter.Elsewhere, "*", "a", "b", "c*")
}

// unroutedTopics returns the unrouted topics in the status.
func (e *env) unroutedTopics() []store.UnroutedTopic {
	e.t.Helper()
	st, err := e.Status(e.ctx)
	e.must(err, "status")
	return st.Unrouted
}

func unroutedOnce(e *env) {
	w := e.worker("r", "a")
	st := store.Settlement{Partition: 1, Token: w.leases[1].Token, Number: 1,
		Unrouted: []store.UnroutedCount{{Topic: "", Count: 2}, {Topic: "Größe.x", Count: 5}}}
	for range 2 {
		settled, err := e.Settle(e.ctx, "r", []store.Settlement{st})
		e.must(err, "settle")
		if len(settled.Lost)+len(settled.Failed) > 0 {
			e.t.Fatalf("settled: %+v", settled)
		}
	}
	stale := st
	stale.Token, stale.Number = store.NewToken(), 2
	if settled, err := e.Settle(e.ctx, "r", []store.Settlement{stale}); err != nil || len(settled.Lost) != 1 {
		e.t.Errorf("settled under another token: %+v, %v", settled, err)
	}
	another := st
	another.Unrouted = st.Unrouted[:1]
	if settled, err := e.Settle(e.ctx, "r", []store.Settlement{another}); err != nil || len(settled.Lost) != 1 {
		e.t.Errorf("settled something else under the same number: %+v, %v", settled, err)
	}
	all := e.unroutedTopics()
	if len(all) != 2 || all[0].Topic != "Größe.x" || all[0].Count != 5 || all[1].Topic != "" || all[1].Count != 2 {
		e.t.Errorf("unrouted: %+v", all)
	}
	for _, u := range all {
		if u.FirstAt.IsZero() || u.LastAt.Before(u.FirstAt) {
			e.t.Errorf("unrouted: %+v", u)
		}
	}
}

func unroutedOfRelays(e *env) {
	r, s := e.worker("r", "a"), e.worker("s", "b")
	count := func(w *worker, partitions int, topic string, n int64) {
		for p := range partitions {
			w.settle(store.Settlement{Partition: p, Unrouted: []store.UnroutedCount{{Topic: topic, Count: n}}})
		}
	}
	count(r, 3, "x", 10)
	count(r, 3, "x", 1)
	count(s, 2, "x", 10)
	count(s, 1, "y", 7)
	all := e.unroutedTopics()
	if len(all) != 2 || all[0].Topic != "x" || all[0].Count != 33 || all[1].Topic != "y" || all[1].Count != 7 {
		e.t.Errorf("unrouted: %+v, want 33 of x and 7 of y", all)
	}
}

func removedFilter(e *env) {
	e.heartbeatOf("other", filtered("z", "z"))
	o := filtered("x", "a")
	e.heartbeatOf("r", o)
	leases := e.leaseAll(o)
	st := store.Settlement{Partition: 0, Token: leases[0].Token, Number: 1, Unrouted: []store.UnroutedCount{{Topic: "b", Count: 1}}}
	_, err := e.Settle(e.ctx, "r", []store.Settlement{st})
	e.must(err, "settle")
	e.must(e.Leave(e.ctx, "r", o), "leave")
	_, err = held.New(e).RemoveRelay(e.ctx, "r", "olga", "gone", false)
	e.must(err, "remove")
	e.wantTopics("of the others", e.heartbeatOf("other", filtered("z", "z")).Filter.Elsewhere)
	if all := e.unroutedTopics(); len(all) != 0 {
		e.t.Errorf("unrouted: %+v", all)
	}
}
