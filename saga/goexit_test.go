package saga

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
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
	t.Parallel()
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
	announced := define(Await[keyed, int]{Name: "wait", Signal: reviewed, Timeout: time.Minute, TimedOut: func(*keyed) {}})
	announced.OnCompleted = func(keyed) (*postrider.Message, error) { runtime.Goexit(); return nil, nil }
	for name, tt := range map[string]struct {
		attempts int
		signal   bool
		start    func(e *Engine[*memory.Tx]) func(ctx context.Context, tx *memory.Tx) error
		want     Status
	}{
		"TimedOut":                        {1, false, starter(define(timedOut), keyed{}), Stuck},
		"OnCompleted":                     {1, false, starter(announced, keyed{}), Stuck},
		"Received, at the second attempt": {2, true, starter(define(received), keyed{}), Stuck},
		"Done of a Child": {1, false, func(e *Engine[*memory.Tx]) func(ctx context.Context, tx *memory.Tx) error {
			starter(child, 0)(e)
			return starter(define(Child[keyed, int]{Name: "child", Saga: child, Data: func(keyed) int { return 1 }, Done: func(*keyed, int) { runtime.Goexit() }}), keyed{})(e)
		}, Stuck},
		"UnmarshalJSON": {1, false, starter(Definition[brittle]{Name: "orders", Version: 1, Steps: []Step[brittle]{
			Await[brittle, int]{Name: "wait", Signal: reviewed, Timeout: time.Minute},
		}}, brittle{}), Compensated},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { endsItsGoroutine(t, tt.attempts, tt.signal, tt.start, tt.want) })
		})
	}
}

// starter registers a definition, and returns what starts an instance of it.
func starter[D any](d Definition[D], data D) func(e *Engine[*memory.Tx]) func(ctx context.Context, tx *memory.Tx) error {
	return func(e *Engine[*memory.Tx]) func(ctx context.Context, tx *memory.Tx) error {
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

func endsItsGoroutine(
	t *testing.T, attempts int, signal bool, start func(e *Engine[*memory.Tx]) func(ctx context.Context, tx *memory.Tx) error, want Status,
) {
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
	in, err := e.Get(ctx, "42")
	must(err)
	status, err := s.Status(ctx)
	must(err)
	if dead := status.Relays[0].Dead.N; in.Status != want || dead > 0 {
		t.Errorf("the instance is %s and waits for %q, and there are %d dead letters; want it %s", in.Status, in.Waiting, dead, want)
	}
	cancel()
	must(<-done)
}
