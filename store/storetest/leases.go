package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/store"
)

var leaseTests = []test{
	{name: "NoPartitionHasTwoHolders", run: noPartitionHasTwoHolders, partitions: 16},
	{name: "ExpiredLeaseIsTakenOver", run: expiredLeaseIsTakenOver},
	{name: "HeartbeatRenewsLeases", run: heartbeatRenews},
	{name: "ReleasedLeaseIsFreeAtOnce", run: releasedLeaseIsFree},
	{name: "StaleReleaseLeavesTheNewHolderAlone", run: staleRelease, statements: true},
	{name: "LeavingReleasesEverything", run: leavingReleases},
	{name: "ViewShowsWhoIsAliveAndWhoHoldsWhat", run: viewShows},
	{name: "LeasesOfRelaysAreIndependent", run: leasesOfRelays},
	{name: "LeaseBeginsWhereTheLastHolderSettled", run: leaseBeginsWhereSettled},
	{name: "StaleTokenChangesNothing", run: staleTokenChangesNothing},
	{name: "OwnerLeasesAnewUnderAnotherToken", run: ownerLeasesAgain},
	{name: "AcquiringTwiceWithATokenGrantsTheSameLease", run: acquiringTwice},
	{name: "LostLeaseIsNotRead", run: lostLeaseIsNotRead},
	{name: "AcquiringDoesNotCountAsAlive", run: acquiringIsNoMember},
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
				leases, err := e.Acquire(e.ctx, "r", o, store.AcquireRequest{Claims: claims(p, (p+1)%e.partitions), TTL: longTTL})
				mu.Lock()
				if err != nil {
					failed = append(failed, err)
				}
				for _, l := range leases {
					if !slices.Contains(holders[l.Partition], l.Owner) { // an owner may lease it again
						holders[l.Partition] = append(holders[l.Partition], l.Owner)
					}
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

// acquire leases the free ones of the given partitions.
func (e *env) acquire(id string, ttl time.Duration, partitions ...int) []store.Lease {
	e.t.Helper()
	leases, err := e.Acquire(e.ctx, "r", owner(id), store.AcquireRequest{Claims: claims(partitions...), TTL: ttl})
	e.must(err, "acquire")
	return leases
}

func (e *env) heartbeat(id string, ttl time.Duration) store.View {
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
	var second []store.Lease
	e.until("take-over of expired leases", func() bool {
		second = append(second, e.acquire("b", longTTL, 0, 1)...)
		return len(second) == 2
	})
	if waited := time.Since(began); waited < shortTTL*9/10 {
		e.t.Errorf("leases of %s were taken over after %s", shortTTL, waited)
	}
	slices.SortFunc(second, func(a, b store.Lease) int { return a.Partition - b.Partition })
	slices.SortFunc(first, func(a, b store.Lease) int { return a.Partition - b.Partition })
	for i, l := range second {
		if l.Partition != first[i].Partition || l.Owner != "b" || l.Token == first[i].Token {
			e.t.Errorf("lease taken over is %+v, the one before was %+v", l, first[i])
		}
	}
}

func heartbeatRenews(e *env) {
	for ttl := shortTTL; !keepsLease(e, ttl); ttl *= 2 { // this machine is too slow for shorter leases
	}
}

// keepsLease renews a lease for three times its length, and reports false if a renewal came so late that the lease may have ended.
func keepsLease(e *env, ttl time.Duration) bool {
	renewed := time.Now()
	e.heartbeat("a", ttl)
	e.acquire("a", ttl, 0)
	tick := time.NewTicker(ttl / 8)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < 3*ttl; <-tick.C {
		before := time.Now()
		e.heartbeat("a", ttl)
		taken := e.acquire("b", longTTL, 0)
		since := time.Since(renewed)
		if since >= ttl {
			e.must(e.Release(e.ctx, "r", refs(taken)), "release")
			return false
		}
		if len(taken) > 0 {
			e.t.Fatalf("a lease of %s was taken over %s after it was renewed", ttl, since)
		}
		renewed = before
	}
	return true
}

func releasedLeaseIsFree(e *env) {
	first := e.acquire("a", longTTL, 0, 1)
	e.must(e.Release(e.ctx, "r", refs(first[:1])), "release")
	second := e.acquire("b", longTTL, 0, 1)
	if len(second) != 1 || second[0].Partition != first[0].Partition || second[0].Token == first[0].Token {
		e.t.Fatalf("after the release of %+v another acquired %+v", first[0], second)
	}
}

func staleRelease(e *env) {
	first := e.acquire("a", longTTL, 0)
	e.must(e.Release(e.ctx, "r", refs(first)), "release")
	e.acquire("b", longTTL, 0)
	e.must(e.Release(e.ctx, "r", refs(first)), "release once more")
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
	ttl := e.longer(shortTTL, 4*shortTTL) // a busy server must show the lease before it ends
	b := e.acquire("b", ttl, 1)
	v := e.heartbeat("b", ttl)
	if v.Alive != 2 {
		e.t.Errorf("%d are alive, want 2", v.Alive)
	}
	slices.SortFunc(v.Partitions, func(a, b store.PartitionView) int { return a.Partition - b.Partition })
	want := []string{"a", "b", "a"}
	if len(v.Partitions) != len(want) {
		e.t.Fatalf("view shows %+v, want three partitions that were leased", v.Partitions)
	}
	for i, p := range v.Partitions {
		token := b[0].Token
		if want[i] == "a" {
			token = a[slices.IndexFunc(a, func(l store.Lease) bool { return l.Partition == i })].Token
		}
		if p.Partition != i || p.Owner != want[i] || p.Token != token {
			e.t.Errorf("view shows %+v, want partition %d held by %s under token %s", p, i, want[i], token)
		}
	}
	e.until("end of the second owner and its lease", func() bool {
		v = e.heartbeat("a", longTTL)
		return v.Alive == 1
	})
	e.must(e.Release(e.ctx, "r", refs(a)), "release")
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
		if l.Cursor.Position < w.leases[p].Cursor.Position || l.Token == w.leases[p].Token || l.Settled != w.number[p] {
			e.t.Errorf("lease %+v follows %+v", l, w.leases[p])
		}
	}
	e.wantSet("fetched by the next holder", recordIDs(next.drain()), second)
}

func refs(leases []store.Lease) []store.LeaseRef {
	out := make([]store.LeaseRef, len(leases))
	for i := range leases {
		out[i] = leases[i].Ref()
	}
	return out
}

// staleTokenChangesNothing: after its lease passed to another process, no settlement of a process has an effect.
func staleTokenChangesNothing(e *env) {
	keys := e.keysOf(0, 3)
	e.publishKeys(keys[0], keys[0], keys[1], keys[2])
	w := e.worker("r", "a")
	r := w.drain()
	seq := func(i int) int64 { return r[i].Message.Sequence }
	w.settle(store.Settlement{
		Parked: []store.ParkOutcome{{Sequence: seq(0), Key: keys[0], FromLog: true, Waits: true, Reason: store.ParkRetry, Attempts: 1}},
		Held:   []store.HeldKey{{Key: keys[0], Sequence: seq(0), Reason: store.ParkRetry, Attempts: 1}},
	})
	next := w.takeOver("b")
	stale := store.Settlement{
		Partition: 0, Cursor: w.read[0], Moved: true, Delivered: []int64{seq(3)}, Removed: []int64{seq(0)},
		Parked:  []store.ParkOutcome{{Sequence: seq(1), Key: keys[0], FromLog: true, Waits: true, Reason: store.ParkHeld}},
		Dead:    []store.DeadOutcome{{Sequence: seq(2), Key: keys[1], FromLog: true, Reason: "attempts exhausted", Attempts: 10}},
		Held:    []store.HeldKey{{Key: keys[2], Sequence: seq(3), Reason: store.ParkRetry}},
		Release: []string{keys[0]}, DeliveredCount: 1, FailedCount: 1,
	}
	for _, c := range []struct {
		name, token string
		number      int64
	}{
		{"the former token", w.leases[0].Token, next.number[0] + 1},
		{"the former token and its next number", w.leases[0].Token, w.number[0] + 1},
		{"a token of nobody", store.NewToken(), next.number[0] + 1},
		{"no token", "", next.number[0] + 1},
		{"a number that was used for something else", next.leases[0].Token, next.number[0]},
		{"an older number", next.leases[0].Token, next.number[0] - 1},
		{"a number too far on", next.leases[0].Token, next.number[0] + 2},
	} {
		stale.Token, stale.Number = c.token, c.number
		out, err := e.Settle(e.ctx, "r", []store.Settlement{stale})
		if err != nil || !slices.Equal(out.Lost, []int{0}) || len(out.Released)+len(out.Failed) > 0 {
			e.t.Fatalf("settled with %s: %+v, %v; want partition 0 lost and nothing released", c.name, out, err)
		}
	}
	due := next.due()
	if len(due.Runs) != 1 || len(due.Runs[0].Entries) != 1 || due.Runs[0].Entries[0].Message.Sequence != seq(0) {
		e.t.Errorf("due is %+v, want the one held key as it was", due.Runs)
	}
	if h := e.held("r"); len(h) != 1 || h[0].Key != keys[0] {
		e.t.Errorf("held keys: %+v, want %s", h, keys[0])
	}
	if deadLetters := e.deadLetters(everyDead); len(deadLetters) > 0 {
		e.t.Errorf("stale settlements wrote dead letters: %+v", deadLetters)
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
	e.must(e.Release(e.ctx, "r", []store.LeaseRef{w.ref(0)}), "release")
	e.acquire("b", longTTL, 0)
	var sts []store.Settlement
	for p := range 2 {
		sts = append(sts, store.Settlement{Partition: p, Token: w.leases[p].Token, Number: 1, Cursor: w.read[p], Moved: true})
	}
	out, err := e.Settle(e.ctx, "r", sts)
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

// ownerLeasesAgain: a process that drops its partition leases it again; a late settlement under the old token has no effect.
func ownerLeasesAgain(e *env) {
	key := e.keysOf(0, 1)[0]
	e.publishKeys(key)
	w := e.worker("r", "a")
	w.drain()
	late := store.Settlement{Partition: 0, Token: w.leases[0].Token, Number: 1, Cursor: w.read[0], Moved: true}
	if again := e.acquire("b", longTTL, 0); len(again) > 0 {
		e.t.Fatalf("another process got the lease of a living one: %+v", again)
	}
	again := e.acquire("a", longTTL, 0)
	if len(again) != 1 || again[0].Token == w.leases[0].Token || again[0].Cursor != w.leases[0].Cursor {
		e.t.Fatalf("leased again: %+v after %+v", again, w.leases[0])
	}
	out, err := e.Settle(e.ctx, "r", []store.Settlement{late})
	if err != nil || !slices.Equal(out.Lost, []int{0}) {
		e.t.Errorf("settlement under the former token: %+v, %v; want it lost", out, err)
	}
	late.Token = again[0].Token
	if out, err = e.Settle(e.ctx, "r", []store.Settlement{late}); err != nil || len(out.Lost) > 0 {
		e.t.Errorf("settlement under the present token: %+v, %v", out, err)
	}
}

func acquiringTwice(e *env) {
	req := store.AcquireRequest{Claims: claims(0, 1), TTL: longTTL}
	var granted [2][]store.Lease
	for i := range granted {
		leases, err := e.Acquire(e.ctx, "r", owner("a"), req)
		if e.must(err, "acquire"); len(leases) != 2 {
			e.t.Fatalf("call %d granted %+v, want two leases", i+1, leases)
		}
		granted[i] = leases
	}
	for _, l := range granted[1] {
		if l.Token != req.Claims[l.Partition].Token {
			e.t.Errorf("the repeated call granted %+v, want the token of the request", l)
		}
	}
}

// lostLeaseIsNotRead: a process whose lease passed to another reads nothing more of the partition, and is told why.
func lostLeaseIsNotRead(e *env) {
	keys := []string{e.keysOf(0, 1)[0], e.keysOf(1, 1)[0]}
	w := e.worker("r", "a")
	w.hold(keys[0], 1, 0)
	w.hold(keys[1], 1, 0)
	e.publishKeys(keys...)
	e.must(e.Release(e.ctx, "r", []store.LeaseRef{w.ref(0)}), "release")
	e.acquire("b", longTTL, 0)
	batches, err := w.Fetch(w.ctx, "r", store.FetchRequest{Limit: 10, MaxBytes: 1 << 20, Partitions: []store.FetchPartition{
		{LeaseRef: w.ref(0), After: w.read[0]}, {LeaseRef: w.ref(1), After: w.read[1]}}})
	e.must(err, "fetch")
	for _, b := range batches {
		if b.Lost != (b.Partition == 0) || b.Lost == (len(b.Entries) > 0) {
			e.t.Errorf("partition %d: lost %t, %d records; want partition 0 lost and the other read", b.Partition, b.Lost, len(b.Entries))
		}
	}
	if len(batches) != 2 {
		e.t.Errorf("%d batches, want one for each partition", len(batches))
	}
	due, err := w.Due(w.ctx, "r", store.DueRequest{Leases: []store.LeaseRef{w.ref(0), w.ref(1)}, Runs: 10, RunLength: 10, MaxBytes: 1 << 20})
	e.must(err, "due")
	if !slices.Equal(due.Lost, []int{0}) || len(due.Runs) != 1 || due.Runs[0].Key != keys[1] {
		e.t.Errorf("due: lost %v, runs %+v; want partition 0 lost and the key of the other", due.Lost, due.Runs)
	}
}

// acquiringIsNoMember: an operator's program that briefly leases a partition takes no share from the others.
func acquiringIsNoMember(e *env) {
	e.acquire("operator", longTTL, 0)
	if v := e.heartbeat("a", longTTL); v.Alive != 1 {
		e.t.Errorf("%d are alive, want the one that sends heartbeats", v.Alive)
	}
	e.must(e.Leave(e.ctx, "r", owner("operator")), "leave")
	if leases := e.acquire("a", longTTL, 0); len(leases) != 1 {
		e.t.Errorf("acquired %+v of a partition whose owner left", leases)
	}
}
