package resilience_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/resilience"
)

var errDown = errors.New("connection refused")

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// pass lets time pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// newSet returns a set that logs nothing, and waits for its calls at the end.
func newSet(t *testing.T, c resilience.Config) *resilience.Set {
	t.Helper()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := resilience.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// parsed returns a set with a configuration in JSON.
func parsed(t *testing.T, text string) *resilience.Set {
	t.Helper()
	c, err := resilience.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return newSet(t, c)
}

// once makes the default policy one attempt.
func once(p resilience.Policy) resilience.Config {
	p.Retry.Attempts = 1
	return resilience.Config{Default: p}
}

// end makes n calls with an outcome, and returns how many of them reached the function.
func end(t *testing.T, o *resilience.Operation, n int, err error) (reached int) {
	t.Helper()
	for range n {
		_ = o.Run(t.Context(), func(context.Context) error {
			reached++
			return err
		})
	}
	return reached
}

// isOpen reports whether the breaker lets no call through, without making one.
func isOpen(o *resilience.Operation) bool {
	n, _ := o.Allow(1)
	return n == 0
}

// handling is the context of a handler whose attempt ends after a time.
func handling(t *testing.T, attempt time.Duration) context.Context {
	t.Helper()
	ctx := postrider.ContextWithMessage(t.Context(), &postrider.Message{ID: "m1", Key: "order/1"})
	ctx, cancel := context.WithTimeout(ctx, attempt)
	t.Cleanup(cancel)
	return ctx
}

// observer counts what it is told.
type observer struct {
	mu     sync.Mutex
	ended  map[string]int
	states []string
}

func (o *observer) Called(_ context.Context, _, _, result string, _ int, _ time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended == nil {
		o.ended = make(map[string]int)
	}
	o.ended[result]++
}

func (o *observer) BreakerChanged(_, _, state string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.states = append(o.states, state)
}

func (o *observer) counted(result resilience.Result) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended[string(result)]
}
