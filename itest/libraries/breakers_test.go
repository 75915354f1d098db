package libraries_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/sony/gobreaker/v2"
)

var (
	errDown     = errors.New("down")
	errDeclined = errors.New("declined")
)

// gobreakerWith returns a breaker that opens at half of at least five calls in a minute, and excludes declined and cancelled calls.
func gobreakerWith(change func(*gobreaker.Settings)) *gobreaker.CircuitBreaker[int] {
	s := gobreaker.Settings{
		MaxRequests: 2, Interval: time.Minute, BucketPeriod: 6 * time.Second, Timeout: time.Second,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			calls := c.TotalFailures + c.TotalSuccesses
			return calls >= 5 && 2*c.TotalFailures >= calls
		},
		IsExcluded: func(err error) bool { return errors.Is(err, errDeclined) || errors.Is(err, context.Canceled) },
	}
	change(&s)
	return gobreaker.NewCircuitBreaker[int](s)
}

func unchanged(*gobreaker.Settings) {}

// atOnce opens a gobreaker with the first failure.
func atOnce(s *gobreaker.Settings) {
	s.ReadyToTrip = func(gobreaker.Counts) bool { return true }
}

func panicking[T any](run func(func() (T, error)) (T, error)) {
	defer func() { _ = recover() }()
	_, _ = run(func() (T, error) { panic("boom") })
}

// The rows of the table in docs/adr/0019-gobreaker.md: what gobreaker does, and what failsafe-go does.

func TestPanicOfAProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := gobreakerWith(atOnce)
		_, _ = g.Execute(func() (int, error) { return 0, errDown })
		time.Sleep(2 * time.Second)
		for range 2 {
			panicking(g.Execute)
		}
		time.Sleep(2 * time.Second)
		if _, err := g.Execute(func() (int, error) { return 1, nil }); err != nil {
			t.Errorf("gobreaker after two probes that panicked: %v", err)
		}

		f := circuitbreaker.NewBuilder[int]().WithFailureThreshold(1).WithSuccessThreshold(2).WithDelay(time.Second).Build()
		_ = failsafe.With[int](f).Run(func() error { return errDown })
		time.Sleep(2 * time.Second)
		for range 2 {
			panicking(failsafe.With[int](f).Get)
		}
		time.Sleep(time.Hour)
		if err := failsafe.With[int](f).Run(func() error { return nil }); !errors.Is(err, circuitbreaker.ErrOpen) {
			t.Errorf("failsafe-go no longer keeps the places of probes that panicked: %v", err)
		}
	})
}

func TestDeclinedCalls(t *testing.T) {
	t.Parallel()
	g := gobreakerWith(unchanged)
	f := circuitbreaker.NewBuilder[int]().HandleIf(func(_ int, err error) bool { return err != nil && !errors.Is(err, errDeclined) }).
		WithFailureRateThreshold(0.5, 4, time.Minute).Build()
	for range 6 {
		_, _ = g.Execute(func() (int, error) { return 0, errDeclined })
		_ = failsafe.With[int](f).Run(func() error { return errDeclined })
	}
	if c := g.Counts(); c.TotalSuccesses != 0 || c.TotalFailures != 0 || c.TotalExclusions != 6 {
		t.Errorf("gobreaker counts %+v", c)
	}
	if m := f.Metrics(); m.Successes() != 6 {
		t.Errorf("failsafe-go no longer counts declined calls as successes: %d", m.Successes())
	}
}

func TestShareOfTheLastCalls(t *testing.T) {
	t.Parallel()
	g := gobreakerWith(unchanged)
	f := circuitbreaker.NewBuilder[int]().WithFailureThresholdRatio(5, 10).Build()
	for i := range 5 {
		err := errDown
		if i < 2 {
			err = nil
		}
		_, _ = g.Execute(func() (int, error) { return 0, err })
		_ = failsafe.With[int](f).Run(func() error { return err })
	}
	if g.State() != gobreaker.StateOpen {
		t.Errorf("gobreaker with 3 failures of 5 calls: %s", g.State())
	}
	if !f.IsClosed() {
		t.Error("failsafe-go now opens before its window is full")
	}

	// Neither has a window of the last n calls with a share of failures and a least number of calls. Ten calls fail after a hundred
	// that succeed.
	g = gobreakerWith(unchanged)
	for i := range 110 {
		err := error(nil)
		if i >= 100 {
			err = errDown
		}
		_, _ = g.Execute(func() (int, error) { return 0, err })
	}
	if g.State() != gobreaker.StateClosed {
		t.Error("gobreaker now has a window of calls")
	}
}

func TestCancelledCalls(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	g := gobreakerWith(atOnce)
	_, _ = g.Execute(func() (int, error) { return 0, cancelled.Err() })
	if g.State() != gobreaker.StateClosed {
		t.Error("gobreaker opens for a cancelled call")
	}
	f := circuitbreaker.NewBuilder[int]().WithFailureThreshold(1).Build()
	_ = failsafe.With[int](f).WithContext(cancelled).Run(func() error { return cancelled.Err() })
	if !f.IsOpen() {
		t.Error("failsafe-go no longer opens for a cancelled call")
	}
}

// TestCancelledProbe: a probe that does not count makes room for another. Of failsafe-go, standing alone, a probe cannot give its place
// back.
func TestCancelledProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := gobreakerWith(func(s *gobreaker.Settings) {
			atOnce(s)
			s.MaxRequests = 1
		})
		_, _ = g.Execute(func() (int, error) { return 0, errDown })
		time.Sleep(2 * time.Second)
		_, _ = g.Execute(func() (int, error) { return 0, context.Canceled })
		if _, err := g.Execute(func() (int, error) { return 1, nil }); err != nil || g.State() != gobreaker.StateClosed {
			t.Errorf("gobreaker: %v, %s", err, g.State())
		}
	})
}

func TestRetriesOfFailsafe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		over, limit := 0, 8*time.Microsecond
		p := retrypolicy.NewBuilder[int]().WithMaxAttempts(200).WithBackoff(time.Microsecond, limit).WithJitterFactor(0.5).
			OnRetryScheduled(func(e failsafe.ExecutionScheduledEvent[int]) {
				if e.Delay > limit {
					over++
				}
			}).Build()
		_ = failsafe.With[int](p).Run(func() error { return errDown })
		if over == 0 {
			t.Error("failsafe-go now keeps the wait with its jitter below the maximum")
		}
		calls, began := 0, time.Now()
		to := timeout.New[int](20 * time.Millisecond)
		_ = failsafe.With[int](to).Run(func() error {
			calls++
			time.Sleep(150 * time.Millisecond)
			return nil
		})
		if took := time.Since(began); took < 100*time.Millisecond {
			t.Errorf("failsafe-go now abandons a call that ignores its context: %s", took)
		}
	})
}
