package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/resilience"
)

// TestAttemptsAreSpread: a hundred processes fail at the same moment. No 50 ms have more than 15% of their further attempts.
func TestAttemptsAreSpread(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var mu sync.Mutex
		slots := make(map[int64]int)
		began := time.Now()
		var processes sync.WaitGroup
		for range 100 {
			o := newSet(t, resilience.Config{Default: resilience.Policy{Retry: resilience.Retry{Attempts: 5}}}).Operation("x")
			processes.Go(func() {
				first := true
				_ = o.Run(t.Context(), func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					if !first {
						slots[int64(time.Since(began)/(50*time.Millisecond))]++
					}
					first = false
					return errDown
				})
			})
		}
		processes.Wait()
		for slot, n := range slots {
			if n > 400*15/100 {
				t.Errorf("%d attempts in the 50 ms from %d ms on", n, slot*50)
			}
		}
	})
}

// TestRetrySucceeds: success at the second attempt is a success of the call.
func TestRetrySucceeds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := newSet(t, resilience.Config{}).Operation("x")
		for range 20 {
			n := 0
			got, err := resilience.Call(t.Context(), o, func(context.Context) (int, error) {
				if n++; n < 2 {
					return 0, errDown
				}
				return 42, nil
			})
			if got != 42 || err != nil {
				t.Fatal(got, err)
			}
		}
		if s := o.State(); s.Failures != 0 || s.Calls != 10 {
			t.Errorf("%+v", s)
		}
		_, err := resilience.Call(t.Context(), o, func(context.Context) (int, error) { return 1, errDown })
		e, ok := errors.AsType[*resilience.Error](err)
		if !ok || e.Attempts != 3 || !errors.Is(err, resilience.ErrExhausted) || !errors.Is(err, errDown) {
			t.Errorf("got %v", err)
		}
	})
}

// TestRejectionsAreNotRepeated: a call inside another one that its breaker rejects is not repeated, and does not count against the
// outer one.
func TestRejectionsAreNotRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSet(t, resilience.Config{})
		inner, outer := s.Operation("inner"), s.Operation("outer")
		for !isOpen(inner) {
			end(t, inner, 1, errDown)
		}
		calls := 0
		for range 20 {
			err := outer.Run(t.Context(), func(ctx context.Context) error {
				calls++
				return fmt.Errorf("charge: %w", inner.Run(ctx, func(context.Context) error { return nil }))
			})
			if !errors.Is(err, resilience.ErrOpen) {
				t.Fatal(err)
			}
		}
		if calls != 20 || isOpen(outer) {
			t.Errorf("%d calls; the outer breaker: %+v", calls, outer.State())
		}
	})
}

// TestBulkhead: of three calls at a time that two may be, one waits for its turn, and is rejected if it waits too long.
func TestBulkhead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := newSet(t, once(resilience.Policy{Bulkhead: resilience.Bulkhead{Calls: 2, Wait: 3 * time.Second}})).Operation("x")
		takes := func(d time.Duration) *resilience.Pending[int] {
			return resilience.Go(t.Context(), o, func(context.Context) (int, error) {
				time.Sleep(d)
				return 1, nil
			})
		}
		takes(2 * time.Second)
		takes(8 * time.Second)
		synctest.Wait()
		waits := takes(8 * time.Second)
		pass(2500 * time.Millisecond)
		if s := o.State(); s.InUse != 2 {
			t.Errorf("%d in use", s.InUse)
		}
		if _, err := takes(0).Wait(t.Context()); !errors.Is(err, resilience.ErrAtCapacity) {
			t.Errorf("got %v", err)
		}
		if n, err := waits.Wait(t.Context()); n != 1 || err != nil {
			t.Errorf("the call that waited for its turn: %d, %v", n, err)
		}
		if s := o.State(); s.Failures != 0 {
			t.Errorf("a rejection counts as a failure: %+v", s)
		}
	})
}

// TestRateLimit: every attempt takes a token. Without a wait the limit rejects; with one, attempts are spaced.
func TestRateLimit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		strict := newSet(t, once(resilience.Policy{RateLimit: resilience.RateLimit{PerSecond: 10, Burst: 5}})).Operation("x")
		if n := end(t, strict, 100, nil); n != 5 {
			t.Errorf("%d calls at once", n)
		}
		err := strict.Run(t.Context(), func(context.Context) error { return nil })
		if e, ok := errors.AsType[*resilience.Error](err); !ok || e.Kind != resilience.ErrRateLimited || e.RetryIn != 100*time.Millisecond {
			t.Errorf("got %v", err)
		}
		pass(time.Second)
		if n := end(t, strict, 100, nil); n != 5 {
			t.Errorf("%d calls after a second", n)
		}
		patient := newSet(t, resilience.Config{Default: resilience.Policy{
			RateLimit: resilience.RateLimit{PerSecond: 10, Burst: 1, Wait: time.Second}, Retry: resilience.Retry{Fixed: 1},
		}}).Operation("x")
		began := time.Now()
		end(t, patient, 1, errDown)
		if took := time.Since(began); took < 190*time.Millisecond {
			t.Errorf("three attempts in %s", took)
		}
	})
}

// TestTimes: a call that does not heed its context returns when it does, unless it may be abandoned; all attempts together end with
// the total time.
func TestTimes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ignores := func(context.Context) error {
			time.Sleep(150 * time.Millisecond)
			return nil
		}
		took := func(o *resilience.Operation, f func(context.Context) error) (time.Duration, error) {
			began := time.Now()
			err := o.Run(t.Context(), f)
			return time.Since(began), err
		}
		s := newSet(t, resilience.Config{Default: resilience.Policy{Timeout: 20 * time.Millisecond, Retry: resilience.Retry{Attempts: 1}}, Operations: map[string]resilience.Policy{
			"abandoned": {AbandonOnTimeout: true},
			"total":     {Total: time.Second, Timeout: 400 * time.Millisecond, Retry: resilience.Retry{Attempts: 10, Fixed: time.Millisecond}, Breaker: resilience.Breaker{Off: true}},
		}})
		if d, err := took(s.Operation("waits"), ignores); d != 150*time.Millisecond || err != nil {
			t.Errorf("took %s: %v", d, err)
		}
		o := s.Operation("abandoned")
		if d, err := took(o, ignores); d != 20*time.Millisecond || !errors.Is(err, resilience.ErrTimeout) || o.State().Abandoned != 1 {
			t.Errorf("took %s: %v, %+v", d, err, o.State())
		}
		pass(time.Second)
		if o.State().Abandoned != 0 {
			t.Error("a function that has returned counts as abandoned")
		}
		if d, err := took(s.Operation("total"), waitForEnd); d != time.Second || !errors.Is(err, resilience.ErrTimeout) {
			t.Errorf("took %s: %v", d, err)
		}
		slow := newSet(t, once(resilience.Policy{Breaker: resilience.Breaker{SlowAfter: 100 * time.Millisecond}})).Operation("slow")
		for range 5 {
			if err := slow.Run(t.Context(), ignores); err != nil {
				t.Fatal(err)
			}
		}
		if !isOpen(slow) {
			t.Error("slow calls do not count as failures")
		}
	})
}

// TestGo: a hundred futures fail after a second. Each failure counts when its work ends, and Close waits for all.
func TestGo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ob := &observer{}
		c := once(resilience.Policy{})
		c.Observer = ob
		s := newSet(t, c)
		o := s.Operation("x")
		var pending []*resilience.Pending[int]
		for range 100 {
			pending = append(pending, resilience.Go(t.Context(), o, func(context.Context) (int, error) {
				time.Sleep(time.Second)
				return 0, errDown
			}))
		}
		pass(900 * time.Millisecond)
		if isOpen(o) || ob.counted(resilience.ResultFailure) != 0 {
			t.Error("a failure counts before the work has ended")
		}
		s.Close()
		if !isOpen(o) || ob.counted(resilience.ResultFailure) != 100 {
			t.Errorf("counted %v", ob.ended)
		}
		for _, p := range pending {
			if _, err := p.Wait(t.Context()); !errors.Is(err, errDown) {
				t.Fatal(err)
			}
		}
		broken := resilience.Go(t.Context(), s.Operation("y"), func(context.Context) (int, error) { panic("boom") })
		if _, err := broken.Wait(t.Context()); err == nil {
			t.Error("a panic is no error")
		}
	})
}

// TestInAHandler: what a relay is told about each end of a call, and how often the function is called for one attempt of a message.
func TestInAHandler(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSet(t, resilience.Config{Operations: map[string]resilience.Policy{
			"twice": {Retry: resilience.Retry{InHandler: 2}},
			"full":  {RateLimit: resilience.RateLimit{PerSecond: 0.001, Burst: 1}},
		}})
		outcome := func(o *resilience.Operation, err error) (postrider.Outcome, int) {
			calls := 0
			got := resilience.Handler(o, func(context.Context, *postrider.Message) error {
				calls++
				return err
			})(handling(t, 30*time.Second), &postrider.Message{})
			return postrider.OutcomeOf(got), calls
		}
		later := postrider.Retry(time.Hour, errDown)
		end(t, s.Operation("full"), 1, nil)
		end(t, s.Operation("open"), 5, errDown)
		for _, c := range []struct {
			operation string
			err       error
			calls     int
			want      postrider.OutcomeKind
			least     time.Duration
			most      time.Duration
		}{
			{"a", errDown, 1, postrider.Retried, 0, 0},
			{"twice", errDown, 2, postrider.Retried, 0, 0},
			{"a", later, 1, postrider.Retried, time.Hour, time.Hour},
			{"twice", later, 1, postrider.Retried, time.Hour, time.Hour},
			{"a", resilience.Decline(errDown), 1, postrider.DeadLettered, 0, 0},
			{"a", resilience.Decline(postrider.Discard("known", nil)), 1, postrider.Discarded, 0, 0},
			{"a", postrider.Snooze(time.Minute), 1, postrider.Snoozed, time.Minute, time.Minute},
			{"a", postrider.UnavailableFor(time.Minute, errDown), 1, postrider.BrokerUnavailable, time.Minute, time.Minute},
			{"open", nil, 0, postrider.BrokerUnavailable, 8 * time.Second, 15 * time.Second},
			{"full", nil, 0, postrider.BrokerUnavailable, 900 * time.Second, 1300 * time.Second},
		} {
			got, calls := outcome(s.Operation(c.operation), c.err)
			if got.Kind != c.want || calls != c.calls || got.After < c.least || got.After > c.most {
				t.Errorf("%s, %v: %+v after %d calls, want %s", c.operation, c.err, got, calls, c.want)
			}
			if c.operation == "a" {
				end(t, s.Operation("a"), 10, nil)
			}
		}
	})
}

// TestTotalTimeInAHandler: a call ends when nine tenths of the time that its handler has left are over.
func TestTotalTimeInAHandler(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := newSet(t, resilience.Config{}).Operation("x")
		ctx, began := handling(t, 5*time.Second), time.Now()
		err := o.Run(ctx, waitForEnd)
		if took := time.Since(began); took != 4500*time.Millisecond || !errors.Is(err, resilience.ErrTimeout) {
			t.Errorf("took %s: %v", took, err)
		}
	})
}

// TestPublisher: a publisher whose operation breaks or retries is refused, with the names of the relay's own settings. A rejected
// call counts as an unavailable destination.
func TestPublisher(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newSet(t, resilience.Config{Operations: map[string]resilience.Policy{
			"limited": {Breaker: resilience.Breaker{Off: true}, Retry: resilience.Retry{Attempts: 1}, RateLimit: resilience.RateLimit{PerSecond: 1}},
		}})
		_, err := resilience.Publisher(s.Operation("x"), accepting{})
		wantIn(t, err, "breaker.off", "retry.attempts", "MaxAttempts", "BackoffBase")
		p, err := resilience.Publisher(s.Operation("limited"), accepting{})
		if err != nil {
			t.Fatal(err)
		}
		msgs := make([]*postrider.Message, 3)
		if errs := p.Publish(t.Context(), msgs); errs != nil {
			t.Error(errs)
		}
		errs := p.Publish(t.Context(), msgs)
		if len(errs) != 3 || postrider.OutcomeOf(errs[2]).Kind != postrider.BrokerUnavailable {
			t.Error(errs)
		}
	})
}
