package guard_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox/guard"
	"github.com/postrider/postrider/store/memory"
)

var errBoom = errors.New("boom")

func guards(t *testing.T) (one, two *guard.Guard) {
	t.Helper()
	store := memory.New(memory.Config{})
	cfg := guard.Config{Name: "charge", Lease: time.Minute}
	one, err := guard.New(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if two, err = guard.New(store.Reopen(), cfg); err != nil {
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
