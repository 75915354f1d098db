package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/relay"
)

var leaseTests = []test{
	{name: "NoPartitionHasTwoHolders", run: noPartitionHasTwoHolders, partitions: 16},
	{name: "ExpiredLeaseIsTakenOverWithAHigherEpoch", run: expiredLeaseIsTakenOver},
	{name: "HeartbeatRenewsLeases", run: heartbeatRenews},
	{name: "ReleasedLeaseIsFreeAtOnce", run: releasedLeaseIsFree},
	{name: "StaleReleaseLeavesTheNewHolderAlone", run: staleRelease},
	{name: "LeavingReleasesEverything", run: leavingReleases},
	{name: "ViewShowsWhoIsAliveAndWhoHoldsWhat", run: viewShows},
	{name: "LeasesOfRelaysAreIndependent", run: leasesOfRelays},
	{name: "LeaseBeginsWhereTheLastHolderSettled", run: leaseBeginsWhereSettled},
	{name: "StaleEpochChangesNothing", run: staleEpochChangesNothing},
	{name: "OneLostPartitionDoesNotHinderAnother", run: oneLostPartition},
}

func noPartitionHasTwoHolders(e *env) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	holders := make(map[int][]string)
	var failed []error
	for i := range 4 {
		wg.Go(func() {
			o := owner(fmt.Sprintf("w%d", i))
			for _, p := range e.allPartitions() {
				leases, err := e.Acquire(e.ctx, "r", o, []int{p, (p + 1) % e.partitions}, longTTL, relay.FromOldest)
				mu.Lock()
				if err != nil {
					failed = append(failed, err)
				}
				for _, l := range leases {
					holders[l.Partition] = append(holders[l.Partition], l.Owner)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(failed) > 0 {
		e.t.Fatalf("acquire: %v", failed)
	}
	for _, p := range e.allPartitions() {
		if len(holders[p]) != 1 {
			e.t.Errorf("partition %d was acquired by %v, want exactly one", p, holders[p])
		}
	}
}

// acquire leases what is free of the given partitions.
func (e *env) acquire(id string, ttl time.Duration, partitions ...int) []relay.Lease {
	e.t.Helper()
	leases, err := e.Acquire(e.ctx, "r", owner(id), partitions, ttl, relay.FromOldest)
	e.must(err, "acquire")
	return leases
}

func (e *env) heartbeat(id string, ttl time.Duration) relay.View {
	e.t.Helper()
	v, err := e.Heartbeat(e.ctx, "r", owner(id), ttl)
	e.must(err, "heartbeat")
	return v
}

func expiredLeaseIsTakenOver(e *env) {
	began := time.Now()
	first := e.acquire("a", shortTTL, 0, 1)
	if len(first) != 2 {
		e.t.Fatalf("acquired %d of 2 free partitions", len(first))
	}
	if again := e.acquire("a", shortTTL, 0, 1); len(again) > 0 {
		e.t.Errorf("partitions that the caller holds already were leased again: %+v", again)
	}
	var second []relay.Lease
	e.until("take-over of expired leases", func() bool {
		second = append(second, e.acquire("b", longTTL, 0, 1)...)
		return len(second) == 2
	})
	if waited := time.Since(began); waited < shortTTL*9/10 {
		e.t.Errorf("leases of %s were taken over after %s", shortTTL, waited)
	}
	slices.SortFunc(second, func(a, b relay.Lease) int { return a.Partition - b.Partition })
	slices.SortFunc(first, func(a, b relay.Lease) int { return a.Partition - b.Partition })
	for i, l := range second {
		if l.Partition != first[i].Partition || l.Owner != "b" || l.Epoch <= first[i].Epoch {
			e.t.Errorf("lease taken over is %+v, the one before was %+v", l, first[i])
		}
	}
}

func heartbeatRenews(e *env) {
	e.heartbeat("a", shortTTL)
	e.acquire("a", shortTTL, 0)
	tick := time.NewTicker(shortTTL / 8)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < 3*shortTTL; <-tick.C {
		before := time.Now()
		e.heartbeat("a", shortTTL)
		taken := e.acquire("b", longTTL, 0)
		if late := time.Since(before); len(taken) > 0 && late < shortTTL {
			e.t.Fatalf("a lease was taken over %s after it was renewed for %s", late, shortTTL)
		}
	}
}

func releasedLeaseIsFree(e *env) {
	first := e.acquire("a", longTTL, 0, 1)
	e.must(e.Release(e.ctx, "r", first[:1]), "release")
	second := e.acquire("b", longTTL, 0, 1)
	if len(second) != 1 || second[0].Partition != first[0].Partition || second[0].Epoch <= first[0].Epoch {
		e.t.Fatalf("after the release of %+v another acquired %+v", first[0], second)
	}
}

func staleRelease(e *env) {
	first := e.acquire("a", longTTL, 0)
	e.must(e.Release(e.ctx, "r", first), "release")
	e.acquire("b", longTTL, 0)
	e.must(e.Release(e.ctx, "r", first), "release once more")
	if third := e.acquire("c", longTTL, 0); len(third) > 0 {
		e.t.Errorf("a stale release freed the new holder's lease: %+v", third)
	}
}

func leavingReleases(e *env) {
	e.heartbeat("a", longTTL)
	e.heartbeat("b", longTTL)
	e.acquire("a", longTTL, 0, 1)
	e.must(e.Leave(e.ctx, "r", owner("a")), "leave")
	if v := e.heartbeat("b", longTTL); v.Alive != 1 {
		e.t.Errorf("%d are alive after one of two left", v.Alive)
	}
	if got := e.acquire("b", longTTL, 0, 1); len(got) != 2 {
		e.t.Errorf("acquired %d of the 2 partitions of an owner that left", len(got))
	}
	e.must(e.Leave(e.ctx, "r", owner("a")), "leave once more")
}

func viewShows(e *env) {
	e.heartbeat("a", longTTL)
	a := e.acquire("a", longTTL, 0, 2)
	ttl := e.longer(shortTTL, 4*shortTTL) // a busy server is to show the lease before it ends
	e.acquire("b", ttl, 1)
	v := e.heartbeat("b", ttl)
	if v.Alive != 2 {
		e.t.Errorf("%d are alive, want 2", v.Alive)
	}
	slices.SortFunc(v.Partitions, func(a, b relay.PartitionView) int { return a.Partition - b.Partition })
	want := []string{"a", "b", "a"}
	if len(v.Partitions) != len(want) {
		e.t.Fatalf("view shows %+v, want three partitions that were leased", v.Partitions)
	}
	for i, p := range v.Partitions {
		if p.Partition != i || p.Owner != want[i] || p.Epoch < 1 {
			e.t.Errorf("view shows %+v, want partition %d held by %s", p, i, want[i])
		}
	}
	e.until("end of the second owner and its lease", func() bool {
		v = e.heartbeat("a", longTTL)
		return v.Alive == 1
	})
	e.must(e.Release(e.ctx, "r", a), "release")
	v = e.heartbeat("a", longTTL)
	for _, p := range v.Partitions {
		if p.Owner != "" {
			e.t.Errorf("view shows %+v, want no holder after release and expiry", p)
		}
	}
}

func leasesOfRelays(e *env) {
	e.worker("one", "a")
	e.worker("two", "b") // fails the test if not all partitions are free
	v, err := e.Heartbeat(e.ctx, "two", owner("b"), longTTL)
	e.must(err, "heartbeat")
	if v.Alive != 1 || len(v.Partitions) != e.partitions {
		e.t.Errorf("relay two sees %+v, want its own owner and partitions", v)
	}
}

func leaseBeginsWhereSettled(e *env) {
	w := e.worker("r", "a")
	first := e.publishKeys("order/1", "order/2", "order/3", "")
	e.wantSet("fetched", recordIDs(w.drain()), first)
	w.settleRead()
	second := e.publishKeys("order/1", "order/2", "order/3", "")
	w.drain()
	next := w.takeOver("b")
	for p, l := range next.leases {
		if l.Cursor.Position < w.leases[p].Cursor.Position || l.Epoch <= w.leases[p].Epoch {
			e.t.Errorf("lease %+v follows %+v", l, w.leases[p])
		}
	}
	e.wantSet("fetched by the next holder", recordIDs(next.drain()), second)
}

// staleEpochChangesNothing: what a process settles after its lease passed to another has no effect, whatever it is.
func staleEpochChangesNothing(e *env) {
	keys := e.keysOf(0, 3)
	e.publishKeys(keys[0], keys[0], keys[1], keys[2])
	w := e.worker("r", "a")
	r := w.drain()
	seq := func(i int) int64 { return r[i].Message.Sequence }
	w.settle(relay.Settlement{
		Parked: []relay.Parked{{Sequence: seq(0), Key: keys[0], FromLog: true, Waits: true, Reason: relay.ParkRetry, Attempts: 1}},
		Held:   []relay.HeldKey{{Key: keys[0], Sequence: seq(0), Reason: relay.ParkRetry, Attempts: 1}},
	})
	next := w.takeOver("b")
	stale := relay.Settlement{
		Partition: 0, Cursor: w.read[0], Moved: true, Delivered: []int64{seq(3)}, Removed: []int64{seq(0)},
		Parked:  []relay.Parked{{Sequence: seq(1), Key: keys[0], FromLog: true, Waits: true, Reason: relay.ParkHeld}},
		Dead:    []relay.Dead{{Sequence: seq(2), Key: keys[1], FromLog: true, Reason: "attempts exhausted", Attempts: 10}},
		Held:    []relay.HeldKey{{Key: keys[2], Sequence: seq(3), Reason: relay.ParkRetry}},
		Release: []string{keys[0]}, DeliveredCount: 1, FailedCount: 1,
	}
	for _, c := range []struct {
		name  string
		by    relay.Owner
		epoch int64
	}{
		{"the former holder", w.owner, w.leases[0].Epoch},
		{"the former holder with the new epoch", w.owner, next.leases[0].Epoch},
		{"the holder with an old epoch", next.owner, w.leases[0].Epoch},
		{"the holder with an epoch to come", next.owner, next.leases[0].Epoch + 1},
	} {
		stale.Epoch = c.epoch
		out, err := e.Settle(e.ctx, "r", c.by, []relay.Settlement{stale})
		if err != nil || !slices.Equal(out.Lost, []int{0}) || len(out.Released) > 0 {
			e.t.Fatalf("settled by %s: %+v, %v; want partition 0 lost and nothing released", c.name, out, err)
		}
	}
	due := next.due()
	if len(due.Runs) != 1 || len(due.Runs[0].Records) != 1 || due.Runs[0].Records[0].Message.Sequence != seq(0) {
		e.t.Errorf("due is %+v, want the one held key as it was", due.Runs)
	}
	aside, err := e.Aside(e.ctx, "r", 0, 0)
	e.must(err, "aside")
	e.wantIDs("held keys", aside.Keys, keys[:1])
	if letters := e.letters(everyLetter); len(letters) > 0 {
		e.t.Errorf("stale settlements wrote dead letters: %+v", letters)
	}
	e.wantIDs("fetched by the holder", recordIDs(next.drain()), recordIDs(r))
	for _, p := range e.status("r").Partitions {
		if p.Position != 0 {
			e.t.Errorf("position of partition %d is %d", p.Partition, p.Position)
		}
	}
	if st := e.status("r"); st.Delivered != 0 || st.Failed != 0 {
		e.t.Errorf("counted %d delivered and %d failed", st.Delivered, st.Failed)
	}
}

func oneLostPartition(e *env) {
	a, b := e.keysOf(0, 1)[0], e.keysOf(1, 1)[0]
	e.publishKeys(a, b)
	w := e.worker("r", "a")
	w.drain()
	e.must(e.Release(e.ctx, "r", []relay.Lease{w.leases[0]}), "release")
	e.acquire("b", longTTL, 0)
	var sts []relay.Settlement
	for p := range 2 {
		sts = append(sts, relay.Settlement{Partition: p, Epoch: w.leases[p].Epoch, Cursor: w.read[p], Moved: true})
	}
	out, err := e.Settle(e.ctx, "r", w.owner, sts)
	if err != nil || !slices.Equal(out.Lost, []int{0}) {
		e.t.Fatalf("settled two partitions, one of them lost: %+v, %v", out, err)
	}
	e.must(e.Leave(e.ctx, "r", owner("b")), "leave")
	var keys []string
	for _, r := range w.takeOver("c").drain() {
		keys = append(keys, r.Message.Key)
	}
	e.wantIDs("keys fetched afterwards", keys, []string{a})
}
