package relay_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
)

// TestContextOfAnAttempt: however a handler asks, its context ends after AttemptTimeout, says why, and ends with the attempt.
func TestContextOfAnAttempt(t *testing.T) {
	t.Parallel()
	for name, ended := range map[string]func(ctx context.Context) error{
		"Done":        func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"Err alone":   func(ctx context.Context) error { time.Sleep(time.Minute); return ctx.Err() },
		"Cause alone": func(ctx context.Context) error { time.Sleep(time.Minute); return context.Cause(ctx) },
		"a derived one": func(ctx context.Context) error {
			d, end := context.WithCancel(ctx)
			defer end()
			<-d.Done()
			return d.Err()
		},
		"Err, then Cause": func(ctx context.Context) error { time.Sleep(time.Minute); _ = ctx.Err(); return context.Cause(ctx) },
		"a derived cause": func(ctx context.Context) error {
			d, end := context.WithCancel(ctx)
			defer end()
			<-d.Done()
			return context.Cause(d)
		},
		"its own deadline": func(ctx context.Context) error { at, _ := ctx.Deadline(); time.Sleep(time.Until(at)); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				var got error
				var kept context.Context
				var began, until time.Time
				r := b.relay(relay.Config{AttemptTimeout: 10 * time.Second})
				handle(t, r, func(ctx context.Context, _ *postrider.Message) error {
					if kept == nil {
						kept, began = ctx, time.Now()
						until, _ = ctx.Deadline()
						got = ended(ctx)
					}
					return nil
				})
				b.start(r)
				b.publish(b.msg("k"))
				pass(2 * time.Minute)
				if !errors.Is(got, context.DeadlineExceeded) || !until.Equal(began.Add(10*time.Second)) {
					t.Errorf("got %v; the deadline was after %s", got, until.Sub(began))
				}
				if strings.Contains(name, "ause") && !strings.Contains(got.Error(), "attempt took longer than 10s") {
					t.Errorf("the cause is %v", got)
				}
				b.wantNothingLeft(r)
			})
		})
	}
}

// TestContextEndsWithTheAttempt: a handler that returns has left a goroutine with its context.
func TestContextEndsWithTheAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		var before, after error
		r := b.relay(relay.Config{})
		handle(t, r, func(ctx context.Context, m *postrider.Message) error {
			if m.ID == "m001" {
				go func() {
					time.Sleep(time.Second)
					after = ctx.Err()
				}()
				return nil
			}
			go func() { <-ctx.Done(); before = ctx.Err() }()
			time.Sleep(time.Second)
			return nil
		})
		b.start(r)
		b.publish(b.msg("a"), b.msg("b"))
		pass(3 * time.Second)
		if !errors.Is(before, context.Canceled) || !errors.Is(after, context.Canceled) {
			t.Errorf("asked during the attempt: %v; asked after it: %v; want context.Canceled", before, after)
		}
	})
}
