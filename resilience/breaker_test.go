package resilience_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/resilience"
)

// TestDeclinedCallsDoNotCount: for an hour, every second payment is declined. The breaker stays closed. With the same errors
// as failures it opens.
func TestDeclinedCallsDoNotCount(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSet(t, once(resilience.Policy{}))
		for name, err := range map[string]error{
			"decline": resilience.Decline(errDown), "dead": postrider.Dead("no funds", nil), "snooze": postrider.Snooze(time.Second),
		} {
			o := s.Operation(name)
			for range 3600 {
				if reached := end(t, o, 1, err) + end(t, o, 1, nil); reached != 2 {
					t.Fatalf("%s: the breaker is %s", name, o.State().Breaker)
				}
				pass(time.Second)
			}
		}
		o := s.Operation("failures")
		end(t, o, 10, errDown)
		if !isOpen(o) {
			t.Error("ten failures leave the breaker closed")
		}
	})
}

// TestCancelledCallsDoNotCount: callers cancel a thousand calls in a row.
func TestCancelledCallsDoNotCount(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ob := &observer{}
		c := once(resilience.Policy{})
		c.Observer = ob
		o := newSet(t, c).Operation("x")
		for range 1000 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			if err := o.Run(ctx, waitForEnd); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		if s := o.State(); isOpen(o) || s.Failures != 0 || s.Calls != 0 || ob.counted(resilience.ResultCancelled) != 1000 {
			t.Errorf("after 1,000 cancelled calls: %+v, %v", s, ob.ended)
		}
	})
}

func waitForEnd(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestPanicInAProbe: two probes panic, which opens the breaker again each time; then a good one closes it. The panic reaches the
// caller.
func TestPanicInAProbe(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := newSet(t, once(resilience.Policy{Breaker: resilience.Breaker{MinCalls: 1, Probes: 1, OpenMax: 10 * time.Second}})).Operation("x")
		end(t, o, 1, errDown)
		for range 2 {
			pass(15 * time.Second)
			func() {
				defer func() {
					if v := recover(); v != "boom" {
						t.Errorf("the caller got the panic %v", v)
					}
				}()
				_ = o.Run(t.Context(), func(context.Context) error { panic("boom") })
			}()
			if !isOpen(o) {
				t.Fatal("a probe that panicked leaves the breaker closed")
			}
		}
		pass(15 * time.Second)
		end(t, o, 1, nil)
		if s := o.State(); s.Breaker != resilience.BreakerClosed || s.InUse != 0 {
			t.Errorf("after a good probe: %+v", s)
		}
	})
}

// TestProbesThatDoNotCount: a probe whose caller cancels, and one that does not return, make room for others.
func TestProbesThatDoNotCount(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := newSet(t, once(resilience.Policy{Breaker: resilience.Breaker{MinCalls: 1, Probes: 1}})).Operation("x")
		end(t, o, 1, errDown)
		pass(13 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = o.Run(ctx, waitForEnd)
		if isOpen(o) {
			t.Fatal("a cancelled probe keeps its place")
		}
		release := make(chan struct{})
		go func() { _ = o.Run(t.Context(), func(context.Context) error { <-release; return errDown }) }()
		pass(time.Second)
		if !isOpen(o) {
			t.Fatal("two probes at a time")
		}
		pass(20 * time.Second)
		if end(t, o, 1, nil) != 1 || o.State().Breaker != resilience.BreakerClosed {
			t.Error("a probe that does not return keeps its place after its time")
		}
		close(release)
		synctest.Wait()
		if o.State().Breaker != resilience.BreakerClosed {
			t.Error("the late failure of an old probe counts")
		}
	})
}

// TestWaitsDouble: each failed probe doubles the time that the breaker is open, up to its maximum.
func TestWaitsDouble(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := newSet(t, once(resilience.Policy{Breaker: resilience.Breaker{MinCalls: 1}})).Operation("x")
		end(t, o, 1, errDown)
		for _, seconds := range []int{10, 20, 40, 80, 120, 120} {
			want := time.Duration(seconds) * time.Second
			left := o.State().RetryIn
			if left < want*4/5 || left > want*6/5 {
				t.Fatalf("open for %s, want %s give or take a fifth", left, want)
			}
			pass(left + 1)
			end(t, o, 1, errDown)
		}
		pass(3 * time.Minute)
		end(t, o, 3, nil)
		end(t, o, 1, errDown)
		if left := o.State().RetryIn; left > 12*time.Second {
			t.Errorf("open for %s after it was closed", left)
		}
	})
}

// TestRequestedWait: a dependency that asks for a minute is left alone for a minute.
func TestRequestedWait(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := newSet(t, once(resilience.Policy{Breaker: resilience.Breaker{MinCalls: 1}})).Operation("x")
		end(t, o, 1, postrider.Retry(time.Minute, errDown))
		pass(59 * time.Second)
		if !isOpen(o) {
			t.Error("called before the wait is over")
		}
		pass(2 * time.Second)
		if isOpen(o) {
			t.Error("not called after the wait")
		}
	})
}

// TestBreakerAgainstModel compares the window of the last calls with a list of all of them.
func TestBreakerAgainstModel(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for seed := range uint64(200) {
			r := rand.New(rand.NewPCG(seed, 0))
			b := resilience.Breaker{WindowCalls: 1 + r.IntN(20), FailureRate: 0.1 + 0.9*r.Float64()}
			b.MinCalls = 1 + r.IntN(b.WindowCalls)
			o := newSet(t, once(resilience.Policy{Breaker: b})).Operation("x")
			var all []bool
			share := r.Float64()
			for i := range 200 {
				failed := r.Float64() < share
				err := error(nil)
				if failed {
					err = errDown
				}
				if end(t, o, 1, err) != 1 {
					t.Fatalf("seed %d, call %d: rejected", seed, i)
				}
				all = append(all, failed)
				window := all[max(0, len(all)-b.WindowCalls):]
				failures := 0
				for _, f := range window {
					if f {
						failures++
					}
				}
				want := failed && len(window) >= b.MinCalls && float64(failures) >= b.FailureRate*float64(len(window))
				if isOpen(o) != want {
					t.Fatalf("seed %d, call %d, %+v: %d of %d failed, open %t", seed, i, b, failures, len(window), !want)
				}
				if want {
					break
				}
			}
		}
	})
}

// TestTimeoutsTripTheBreaker: a dependency answers after 30 s. The fifth call that runs into its timeout opens the breaker.
func TestTimeoutsTripTheBreaker(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := newSet(t, once(resilience.Policy{Timeout: 2 * time.Second})).Operation("x")
		began := time.Now()
		var calls sync.WaitGroup
		for range 5 {
			calls.Go(func() {
				if err := o.Run(t.Context(), waitForEnd); !errors.Is(err, resilience.ErrTimeout) {
					t.Errorf("got %v", err)
				}
			})
		}
		calls.Wait()
		if took := time.Since(began); !isOpen(o) || took != 2*time.Second {
			t.Errorf("after %s: %+v", took, o.State())
		}
		err := o.Run(t.Context(), func(context.Context) error { return nil })
		e, ok := errors.AsType[*resilience.Error](err)
		if !ok || !errors.Is(err, resilience.ErrOpen) || errors.Is(err, resilience.ErrTimeout) || e.RetryIn <= 0 || e.Operation != "x" {
			t.Errorf("got %v", err)
		}
	})
}

// TestCallsAddUp: thousands of calls with all outcomes add up, and nothing is in use at the end.
func TestCallsAddUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ob := &observer{}
		s := newSet(t, resilience.Config{Observer: ob, Default: resilience.Policy{
			Timeout: time.Second, Bulkhead: resilience.Bulkhead{Calls: 50}, RateLimit: resilience.RateLimit{PerSecond: 400},
			Breaker: resilience.Breaker{OpenFor: time.Second, OpenMax: 2 * time.Second},
		}})
		o := s.Operation("x")
		r := rand.New(rand.NewPCG(1, 2))
		const n = 30_000
		for range n {
			kind, takes := r.IntN(20), time.Duration(r.Int64N(int64(200*time.Millisecond)))
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.Int64N(int64(2*time.Second))))
			t.Cleanup(cancel)
			resilience.Go(ctx, o, func(ctx context.Context) (int, error) {
				select {
				case <-time.After(takes):
				case <-ctx.Done():
					return 0, ctx.Err()
				}
				switch {
				case kind == 0:
					panic("boom")
				case kind < 6:
					return 0, errDown
				case kind < 9:
					return 0, resilience.Decline(errDown)
				}
				return 1, nil
			})
			time.Sleep(2 * time.Millisecond)
		}
		s.Close()
		sum := 0
		for _, result := range resilience.Results {
			sum += ob.counted(result)
		}
		if st := o.State(); sum != n || st.InUse != 0 || st.Abandoned != 0 {
			t.Errorf("%d calls, of which %d ended: %v; %+v", n, sum, ob.ended, st)
		}
		for _, result := range []resilience.Result{
			resilience.ResultSuccess, resilience.ResultFailure, resilience.ResultDeclined, resilience.ResultCancelled, resilience.ResultOpen,
		} {
			if ob.counted(result) == 0 {
				t.Errorf("no call ended with %s", result)
			}
		}
		if !slices.Contains(ob.states, string(resilience.BreakerHalfOpen)) {
			t.Error("the breaker was never half-open")
		}
	})
}
