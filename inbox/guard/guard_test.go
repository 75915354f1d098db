package guard_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox/guard"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

var errBoom = errors.New("boom")

func guards(t *testing.T) (one, two *guard.Guard) {
	t.Helper()
	s := memory.New(memory.Config{})
	cfg := guard.Config{Name: "charge", Lease: time.Minute}
	one, err := guard.New(s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if two, err = guard.New(s.Reopen(), cfg); err != nil {
		t.Fatal(err)
	}
	return one, two
}

func TestGuardRunsOneAtATime(t *testing.T) {
	t.Parallel()
	one, two := guards(t)
	err := one.Do(t.Context(), "order/1", func(ctx context.Context, _ string) error {
		err := two.Do(ctx, "order/1", func(context.Context, string) error { t.Error("two at once"); return nil })
		if o := postrider.OutcomeOf(err); !errors.Is(err, guard.ErrBusy) || o.Kind != postrider.Retried || o.After <= 0 || o.After > time.Minute {
			t.Errorf("while another is at it: %v, want ErrBusy with a time", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = two.Do(t.Context(), "order/1", func(context.Context, string) error { t.Error("again"); return nil })
	if err != nil {
		t.Errorf("when it is done: %v, want nil", err)
	}
	if hits, misses := two.Lookups(); hits != 2 || misses != 0 {
		t.Errorf("%d hits and %d misses, want 2 and 0", hits, misses)
	}
}

func TestGuardThatFailsIsFreeAtOnceWithTheSameKey(t *testing.T) {
	t.Parallel()
	one, two := guards(t)
	var keys []string
	fail := func(_ context.Context, key string) error { keys = append(keys, key); return errBoom }
	for _, g := range []*guard.Guard{one, two, one} {
		if err := g.Do(t.Context(), "order/1", fail); !errors.Is(err, errBoom) {
			t.Errorf("error is %v, want that of the function", err)
		}
	}
	if len(keys) != 3 || keys[0] != keys[1] || keys[1] != keys[2] {
		t.Errorf("keys %v, want the same for each attempt", keys)
	}
	other, err := one.Claim(t.Context(), "order/2")
	if err != nil || other.Key() == keys[0] {
		t.Errorf("another side effect: %v, or its key is the same", err)
	}
}

// TestGuardOfACallWithoutAnAnswerIsBusyUntilItsLeaseEnds: the other system received the request, and the caller stopped waiting
// for its answer. Nobody sends it again before the lease has ended.
func TestGuardOfACallWithoutAnAnswerIsBusyUntilItsLeaseEnds(t *testing.T) {
	t.Parallel()
	cases := map[string]func(ctx context.Context, stop func()) error{
		"the caller stops": func(ctx context.Context, stop func()) error {
			stop()
			return ctx.Err()
		},
		"the caller stops, and the error hides it": func(_ context.Context, stop func()) error {
			stop()
			return errBoom
		},
		"a timeout of the call": func(ctx context.Context, _ func()) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			<-ctx.Done()
			return fmt.Errorf("charge: %w", ctx.Err())
		},
	}
	for name, call := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				one, two := guards(t)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				if err := one.Do(ctx, "order/1", func(ctx context.Context, _ string) error { return call(ctx, stop) }); err == nil {
					t.Fatal("no error of a call without an answer")
				}
				again := func() (ran bool, err error) {
					err = two.Do(t.Context(), "order/1", func(context.Context, string) error { ran = true; return nil })
					return ran, err
				}
				if ran, err := again(); ran || !errors.Is(err, guard.ErrBusy) {
					t.Errorf("within the lease: ran again: %v, %v; want ErrBusy", ran, err)
				}
				time.Sleep(time.Minute)
				if ran, err := again(); !ran || err != nil {
					t.Errorf("after the lease: ran: %v, %v; want the next attempt", ran, err)
				}
			})
		})
	}
}

// slow answers a claim long after it was granted.
type slow struct{ store.Effects }

func (s slow) ClaimEffect(ctx context.Context, guard, id, token string, lease time.Duration) (store.EffectClaim, error) {
	claim, err := s.Effects.ClaimEffect(ctx, guard, id, token, lease)
	time.Sleep(10 * time.Second)
	return claim, err
}

// TestGuardEndsTheCallWithItsLease: the context of the call ends before another caller may claim the side effect, also when the
// claim was answered late.
func TestGuardEndsTheCallWithItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, err := guard.New(slow{memory.New(memory.Config{})}, guard.Config{Name: "charge", Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		claimed := time.Now()
		err = g.Do(t.Context(), "order/1", func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if took := time.Since(claimed); took > time.Minute || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the call ended after %s with %v, want it to end with its lease of a minute", took, err)
		}
	})
}

func TestGuardOfADeadProcessEndsWithItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, two := guards(t)
		dead, err := one.Claim(t.Context(), "order/1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := two.Claim(t.Context(), "order/1"); !errors.Is(err, guard.ErrBusy) {
			t.Errorf("within the lease: %v, want ErrBusy", err)
		}
		time.Sleep(time.Minute)
		next, err := two.Claim(t.Context(), "order/1")
		if err != nil {
			t.Fatalf("after the lease: %v", err)
		}
		if err := dead.Complete(t.Context()); !errors.Is(err, guard.ErrTaken) {
			t.Errorf("the first completes: %v, want ErrTaken", err)
		}
		if err := dead.Fail(t.Context()); err != nil {
			t.Errorf("the first fails: %v", err)
		}
		if err := next.Complete(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := one.Claim(t.Context(), "order/1"); !errors.Is(err, guard.ErrDone) {
			t.Errorf("when it is done: %v, want ErrDone", err)
		}
		time.Sleep(time.Hour)
		if n, err := one.RemoveOlder(t.Context(), time.Minute); n != 1 || err != nil {
			t.Errorf("removed %d, %v; want 1", n, err)
		}
	})
}

func TestGuardConfig(t *testing.T) {
	t.Parallel()
	_, err := guard.New(nil, guard.Config{Lease: -1})
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 3 {
		t.Errorf("error is %v, want all three errors", err)
	}
}

// counting counts calls of RemoveEffects, which may fail.
type counting struct {
	store.Effects
	calls, removed int
	fails          error
}

func (c *counting) RemoveEffects(ctx context.Context, guard string, age time.Duration, limit int) (int, error) {
	c.calls++
	if c.fails != nil {
		return 0, c.fails
	}
	n, err := c.Effects.RemoveEffects(ctx, guard, age, limit)
	c.removed += n
	return n, err
}

// TestGuardRemovesOldSideEffectsByItself: in the long run it keeps what was done within Keep, and removes the rest in batches,
// also after a failure.
func TestGuardRemovesOldSideEffectsByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &counting{Effects: memory.New(memory.Config{})}
		g, err := guard.New(s, guard.Config{Name: "charge", Keep: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		ran := 0
		do := func(id int) {
			t.Helper()
			run := func(context.Context, string) error { ran++; return nil }
			if err := g.Do(t.Context(), fmt.Sprint(id), run); err != nil {
				t.Fatal(err)
			}
		}
		for id := range 2500 {
			do(id)
		}
		if s.calls != 1 || s.removed != 0 {
			t.Errorf("%d calls removed %d within a minute, want one call that finds nothing", s.calls, s.removed)
		}
		time.Sleep(59 * time.Minute)
		do(0)
		if ran != 2500 {
			t.Error("a side effect within Keep ran again")
		}
		time.Sleep(2 * time.Minute)
		s.fails = errBoom
		do(10_000)
		s.fails = nil
		time.Sleep(time.Minute)
		for id := range 4 {
			do(20_000 + id)
		}
		if s.removed != 2500 {
			t.Errorf("%d were removed, want 2,500", s.removed)
		}
		do(0)
		if ran != 2500+1+4+1 {
			t.Errorf("%d ran", ran)
		}
	})
}

func TestGuardThatKeepsForeverRemovesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &counting{Effects: memory.New(memory.Config{})}
		g, err := guard.New(s, guard.Config{Name: "charge", Keep: -1})
		if err != nil {
			t.Fatal(err)
		}
		for id := range 3 {
			if err := g.Do(t.Context(), fmt.Sprint(id), func(context.Context, string) error { return nil }); err != nil {
				t.Fatal(err)
			}
			time.Sleep(1000 * time.Hour)
		}
		if s.calls != 0 {
			t.Errorf("%d calls of RemoveEffects, want none", s.calls)
		}
	})
}

// unsteady fails, or does not answer, when what became of a side effect is to be recorded.
type unsteady struct {
	store.Effects
	record func(ctx context.Context) error
}

func (s unsteady) CompleteEffect(ctx context.Context, guard, id, token string) (bool, error) {
	if err := s.record(ctx); err != nil {
		return false, err
	}
	return s.Effects.CompleteEffect(ctx, guard, id, token)
}

func (s unsteady) FreeEffect(ctx context.Context, guard, id, token string) error {
	if err := s.record(ctx); err != nil {
		return err
	}
	return s.Effects.FreeEffect(ctx, guard, id, token)
}

// TestGuardRecordsOverAnotherConnection: the connection over which a side effect is recorded breaks, or dies without a word. It is recorded
// over another one, so that the next attempt does not run it again.
func TestGuardRecordsOverAnotherConnection(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]func(ctx context.Context) error{
		"broken": func(context.Context) error { return errBoom },
		"silent": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls, runs := 0, 0
				g, err := guard.New(unsteady{memory.New(memory.Config{}), func(ctx context.Context) error {
					if calls++; calls == 1 {
						return fails(ctx)
					}
					return nil
				}}, guard.Config{Name: "charge"})
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if err := g.Do(t.Context(), "order/1", func(context.Context, string) error { runs++; return nil }); err != nil {
						t.Error(err)
					}
					time.Sleep(2 * time.Minute) // longer than the lease
				}
				if runs != 1 {
					t.Errorf("the side effect was run %d times, want once", runs)
				}
			})
		})
	}
}

// TestGuardWithoutTheDatabase: Do returns although the database answers no more.
func TestGuardWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	for name, did := range map[string]error{"done": nil, "failed": errBoom} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, err := guard.New(unsteady{memory.New(memory.Config{}), func(ctx context.Context) error {
					<-ctx.Done()
					return ctx.Err()
				}}, guard.Config{Name: "charge"})
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				err = g.Do(t.Context(), "order/1", func(context.Context, string) error { return did })
				if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > time.Minute {
					t.Errorf("after %s: %v", took, err)
				}
			})
		})
	}
}
