package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/store"
)

// Guard tests a store against the contract of store.Effects. The stores that the harness opens must implement it.
func Guard[Tx any](t *testing.T, f Features, h Harness[Tx]) {
	s := newSuite(f, h)
	for name, run := range map[string]func(e *env, g store.Effects){
		"EffectIsClaimedByOne":             effectClaimedByOne,
		"ConcurrentClaimsHaveOneWinner":    concurrentClaims,
		"LeaseThatEndsFreesTheEffect":      leaseFreesEffect,
		"DoneEffectStaysDone":              doneStaysDone,
		"FailedEffectCanBeClaimedAtOnce":   failedEffectIsFree,
		"GuardsDoNotSeeEachOthersEffects":  effectsOfGuards,
		"DoneEffectsAreForgottenInBatches": effectsRemoved,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.run(t, test{name: name, run: func(e *env) {
				opened := e.database.(*erased[Tx]).Store
				g, ok := opened.(store.Effects)
				if !ok {
					e.t.Fatalf("%T is no store.Effects", opened)
				}
				run(e, g)
			}})
		})
	}
}

// claimEffect claims an effect and checks the result.
func (e *env) claimEffect(g store.Effects, id, token string, lease time.Duration, want store.EffectClaim) {
	e.t.Helper()
	got, err := g.ClaimEffect(e.ctx, "g", id, token, lease)
	e.must(err, "claim effect")
	if got.Granted != want.Granted || got.Done != want.Done || got.Left < 0 || got.Left > want.Left || (got.Left > 0) != (want.Left > 0) {
		e.t.Fatalf("claim of %s by %s: %+v, want %+v", id, token, got, want)
	}
}

func (e *env) completeEffect(g store.Effects, id, token string, want bool) {
	e.t.Helper()
	if got, err := g.CompleteEffect(e.ctx, "g", id, token); err != nil || got != want {
		e.t.Fatalf("complete %s by %s: %v, %v; want %v", id, token, got, err, want)
	}
}

var granted, done = store.EffectClaim{Granted: true}, store.EffectClaim{Done: true}

func effectClaimedByOne(e *env, g store.Effects) {
	e.claimEffect(g, "x", "one", time.Hour, granted)
	e.claimEffect(g, "x", "two", time.Hour, store.EffectClaim{Left: time.Hour})
	e.claimEffect(g, "x", "one", time.Hour, granted) // the response may have been lost
	e.claimEffect(g, "y", "two", time.Hour, granted)
	e.completeEffect(g, "x", "two", false)
	e.must(g.FreeEffect(e.ctx, "g", "x", "two"), "free")
	e.claimEffect(g, "x", "three", time.Hour, store.EffectClaim{Left: time.Hour})
}

func concurrentClaims(e *env, g store.Effects) {
	var claims sync.WaitGroup
	won := make(chan string, 8)
	for _, token := range []string{"a", "b", "c", "d", "e", "f", "h", "i"} {
		claims.Go(func() {
			got, err := g.ClaimEffect(e.ctx, "g", "x", token, time.Hour)
			if err != nil {
				e.t.Errorf("claim: %v", err)
			}
			if got.Granted {
				won <- token
			}
		})
	}
	claims.Wait()
	if len(won) != 1 {
		e.t.Fatalf("%d claims were granted, want 1", len(won))
	}
	e.completeEffect(g, "x", <-won, true)
}

func leaseFreesEffect(e *env, g store.Effects) {
	e.claimEffect(g, "x", "one", shortTTL, granted)
	e.elapse(shortTTL + 50*time.Millisecond)
	e.claimEffect(g, "x", "two", time.Hour, granted)
	e.completeEffect(g, "x", "one", false)
	e.completeEffect(g, "x", "two", true)

	e.claimEffect(g, "y", "one", shortTTL, granted)
	e.elapse(shortTTL + 50*time.Millisecond)
	e.completeEffect(g, "y", "one", true) // no other process has claimed it
}

func doneStaysDone(e *env, g store.Effects) {
	e.claimEffect(g, "x", "one", shortTTL, granted)
	e.completeEffect(g, "x", "one", true)
	e.completeEffect(g, "x", "one", true)
	e.must(g.FreeEffect(e.ctx, "g", "x", "one"), "free")
	e.elapse(shortTTL + 50*time.Millisecond)
	e.claimEffect(g, "x", "one", time.Hour, done)
	e.claimEffect(g, "x", "two", time.Hour, done)
	e.completeEffect(g, "unknown", "one", false)
}

func failedEffectIsFree(e *env, g store.Effects) {
	e.claimEffect(g, "x", "one", time.Hour, granted)
	for range 2 {
		e.must(g.FreeEffect(e.ctx, "g", "x", "one"), "free")
	}
	e.claimEffect(g, "x", "two", time.Hour, granted)
	e.completeEffect(g, "x", "one", false)
}

func effectsOfGuards(e *env, g store.Effects) {
	e.claimEffect(g, "x", "one", time.Hour, granted)
	other, err := g.ClaimEffect(e.ctx, "other", "x", "two", time.Hour)
	if err != nil || !other.Granted {
		e.t.Errorf("claim of another guard: %+v, %v", other, err)
	}
}

func effectsRemoved(e *env, g store.Effects) {
	for _, id := range []string{"a", "b", "c"} {
		e.claimEffect(g, id, "one", time.Hour, granted)
		e.completeEffect(g, id, "one", true)
	}
	e.claimEffect(g, "open", "one", time.Hour, granted)
	e.elapse(2 * shortTTL)
	elapsed := time.Now()
	e.claimEffect(g, "young", "one", time.Hour, granted)
	e.completeEffect(g, "young", "one", true)
	for _, want := range []int{2, 1, 0} {
		older := time.Since(elapsed) + shortTTL // older than young can be, however slow the test is
		if n, err := g.RemoveEffects(e.ctx, "g", older, 2); n != want || err != nil {
			e.t.Fatalf("removed %d, %v; want %d", n, err, want)
		}
	}
	e.claimEffect(g, "a", "two", time.Hour, granted)
	e.claimEffect(g, "open", "two", time.Hour, store.EffectClaim{Left: time.Hour})
	e.claimEffect(g, "young", "two", time.Hour, done)
}
