package saga

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memory"
)

// brittle is data that a build with a fault cannot read.
type brittle struct {
	A int
}

var faultyBuild atomic.Bool // of TestFunctionsThatEndTheirGoroutine alone

func (b *brittle) UnmarshalJSON(text []byte) error {
	if faultyBuild.Load() {
		panic("a fault of this build")
	}
	type plain brittle
	return json.Unmarshal(text, (*plain)(b))
}

// TestFunctionsThatEndTheirGoroutine: a function of a definition that ends its goroutine, or data that panic when they are read, lose no
// message that nothing repeats: the step is stuck, or continues when the data can be read.
func TestFunctionsThatEndTheirGoroutine(t *testing.T) {
	reviewed := postrider.Define[int]("reviewed")
	wait := Await[keyed, int]{Name: "wait", Signal: reviewed, Timeout: time.Minute}
	timedOut, received := wait, wait
	timedOut.TimedOut = func(*keyed) { runtime.Goexit() }
	received.Received = func(*keyed, int) { runtime.Goexit() }
	define := func(steps ...Step[keyed]) Definition[keyed] {
		return Definition[keyed]{Name: "orders", Version: 1, Steps: steps}
	}
	child := Definition[int]{Name: "child", Version: 1, Steps: []Step[int]{
		Await[int, int]{Name: "wait", Signal: reviewed, Timeout: time.Minute, TimedOut: func(*int) {}},
	}}
	broken := Definition[int]{Name: "broken", Version: 1, Steps: []Step[int]{
		Await[int, int]{Name: "wait", OnlyIf: func(int) bool { runtime.Goexit(); return true }, Signal: reviewed, Timeout: time.Hour},
	}}
	over := wait
	over.TimedOut = func(*keyed) {}
	announced := define(over)
	announced.OnCompleted = func(keyed) (*postrider.Message, error) { runtime.Goexit(); return nil, nil }
	startChild := func(d Definition[int], first ...Step[keyed]) func(e *Engine[*memory.Tx]) starts {
		return func(e *Engine[*memory.Tx]) starts {
			starter(d, 0)(e)
			return starter(define(append(first, Child[keyed, int]{
				Name: "child", Saga: d, Data: func(keyed) int { return 1 }, Done: func(*keyed, int) { runtime.Goexit() },
			})...), keyed{})(e)
		}
	}
	for name, tt := range map[string]struct {
		start    func(e *Engine[*memory.Tx]) starts
		attempts int
		signal   bool
		want     Status
		waits    []string
	}{
		"TimedOut":                        {starter(define(timedOut), keyed{}), 1, false, Stuck, []string{"wait"}},
		"OnCompleted":                     {starter(announced, keyed{}), 1, false, Stuck, []string{"end"}},
		"Received, at the second attempt": {starter(define(received), keyed{}), 2, true, Stuck, []string{"wait"}},
		"Done of a Child":                 {startChild(child), 1, false, Stuck, []string{"child"}},
		"a step of a Child":               {startChild(broken, over), 1, false, Running, []string{"child"}}, // which is stuck
		"UnmarshalJSON": {starter(Definition[brittle]{Name: "orders", Version: 1, Steps: []Step[brittle]{
			Await[brittle, int]{Name: "wait", Signal: reviewed, Timeout: time.Minute},
		}}, brittle{}), 1, false, Compensated, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, dead := endsItsGoroutine(t, tt.attempts, tt.signal, tt.start)
				if in.Status != tt.want || !slices.Equal(in.Waiting, tt.waits) || dead > 0 {
					t.Errorf("the instance is %s and waits for %q, and there are %d dead letters; want it %s", in.Status, in.Waiting, dead, tt.want)
				}
			})
		})
	}
}

// starts starts an instance.
type starts func(ctx context.Context, tx *memory.Tx) error

// starter registers a definition, and returns what starts an instance of it.
func starter[D any](d Definition[D], data D) func(e *Engine[*memory.Tx]) starts {
	return func(e *Engine[*memory.Tx]) starts {
		s, err := Register(e, d)
		return func(ctx context.Context, tx *memory.Tx) error {
			if err != nil {
				return err
			}
			_, err := s.Start(ctx, tx, data, ID("42"))
			return err
		}
	}
}

// endsItsGoroutine returns the instance that was started, and the number of dead letters.
func endsItsGoroutine(t *testing.T, attempts int, signal bool, start func(e *Engine[*memory.Tx]) starts) (in Result[json.RawMessage], dead int64) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s := memory.New(memory.Config{})
	box, err := outbox.New(s, outbox.Config{Source: "shop"})
	must(err)
	e, err := New[*memory.Tx](s, box, Config{Name: "shop", Logger: quiet})
	must(err)
	begin := start(e)
	r, err := relay.New(s, relay.Config{Name: "shop", Topics: []string{e.Topic()}, MaxAttempts: attempts, PollMin: time.Second, Logger: quiet})
	must(err)
	must(errors.Join(e.Relay(r)))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	_, err = box.InTx(ctx, begin)
	must(err)
	if signal {
		_, err = box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error {
			return Signal(ctx, tx, box, "shop", "42", postrider.Define[int]("reviewed"), 1)
		})
		must(err)
	}
	time.Sleep(time.Second)
	faultyBuild.Store(true)
	time.Sleep(5 * time.Minute)
	faultyBuild.Store(false)
	time.Sleep(5 * time.Minute)
	in, err = e.Get(ctx, "42")
	must(err)
	status, err := s.Status(ctx)
	must(err)
	cancel()
	must(<-done)
	return in, status.Relays[0].Dead.N
}
