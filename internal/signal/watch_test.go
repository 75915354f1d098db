package signal_test

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/signal"
)

// TestWatch: a change wakes, the same number does not, and a store that is down is asked less often.
func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b signal.Broadcast
		woken, end := b.Subscribe(nil)
		defer end()
		ctx, cancel := context.WithCancel(t.Context())
		var number, looks atomic.Int64
		var down atomic.Bool
		number.Store(7)
		go b.Watch(ctx, func(context.Context) (int64, error) {
			looks.Add(1)
			if down.Load() {
				return 0, errors.New("down")
			}
			return number.Load(), nil
		})
		expect := func(what string, want bool) {
			t.Helper()
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			select {
			case <-woken:
				if !want {
					t.Errorf("%s wakes", what)
				}
			default:
				if want {
					t.Errorf("%s does not wake", what)
				}
			}
		}
		expect("a log with messages", true)
		expect("the same number", false)
		number.Store(5)
		expect("a lower number", true)
		down.Store(true)
		number.Store(6)
		looks.Store(0)
		for range 100 {
			expect("a store that is down", false)
		}
		if n := looks.Load(); n > 11 {
			t.Errorf("%d looks in 10 s at a store that is down", n)
		}
		down.Store(false)
		time.Sleep(time.Second)
		expect("a change while the store was down", true)
		cancel()
		synctest.Wait()
	})
}

// TestAlone: one caller after another, and one that ends before its turn returns.
func TestAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b signal.Broadcast
		running, ended := 0, 0
		call := func() context.CancelFunc {
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				b.Alone(ctx, func() { running++; <-ctx.Done(); running-- })
				ended++
			}()
			synctest.Wait()
			return cancel
		}
		first, second, third := call(), call(), call()
		expect := func(wantRunning, wantEnded int) {
			t.Helper()
			synctest.Wait()
			if running != wantRunning || ended != wantEnded {
				t.Errorf("%d run and %d have ended, want %d and %d", running, ended, wantRunning, wantEnded)
			}
		}
		expect(1, 0)
		second()
		expect(1, 1)
		first()
		expect(1, 2)
		third()
		expect(0, 3)
	})
}

type counted map[string]int

type waker struct {
	woken counted
	all   int
}

func (w *waker) Wake(topics ...string) {
	if len(topics) == 0 {
		w.all++
	}
	for _, t := range topics {
		w.woken[t]++
	}
}

// TestAfter: whoever is to be woken is woken once, for all topics together; for everybody if one call had no topic, or there are many.
func TestAfter(t *testing.T) {
	t.Parallel()
	if signal.AfterOf(t.Context()) != nil {
		t.Error("a context without a transaction has an After")
	}
	var a signal.After
	after := signal.AfterOf(a.Within(t.Context()))
	some, all, many := &waker{woken: counted{}}, &waker{woken: counted{}}, &waker{woken: counted{}}
	after.Add(some, "a")
	after.Add(some, "b", "a")
	after.Add(all, "a")
	after.Add(all)
	after.Add(all, "b")
	for i := range 100 {
		after.Add(many, strconv.Itoa(i))
	}
	var inner signal.After // of a savepoint
	inner.Add(some, "c")
	inner.Join(a.Within(t.Context()))
	inner.Join(t.Context())
	a.Wake()
	if some.all != 0 || !maps.Equal(some.woken, counted{"a": 1, "b": 1, "c": 1}) {
		t.Errorf("with topics: %+v", some)
	}
	for what, w := range map[string]*waker{"a call without a topic": all, "many topics": many} {
		if w.all != 1 || len(w.woken) != 0 {
			t.Errorf("%s: %+v, want everybody woken", what, w)
		}
	}
}
