package resilience

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/postrider/postrider"
)

// Handler returns a handler that is called under the operation's policy.
func Handler(o *Operation, next postrider.Handler) postrider.Handler {
	return func(ctx context.Context, m *postrider.Message) error {
		return o.Run(ctx, func(ctx context.Context) error { return next(ctx, m) })
	}
}

// Interceptor returns a relay.Interceptor that calls all handlers under policies: name returns the operation for a message, "" for
// none.
func Interceptor(s *Set, name func(*postrider.Message) string) func(next postrider.Handler) postrider.Handler {
	return func(next postrider.Handler) postrider.Handler {
		return func(ctx context.Context, m *postrider.Message) error {
			if n := name(m); n != "" {
				return Handler(s.Operation(n), next)(ctx, m)
			}
			return next(ctx, m)
		}
	}
}

// Publisher returns a publisher whose calls are limited by the operation's bulkhead, rate limit and times. Errors: the policy has a
// breaker, more than one attempt, or AbandonOnTimeout. A relay breaks and retries by itself, and would not see failures that are hidden
// from it.
func Publisher(o *Operation, p postrider.Publisher) (postrider.Publisher, error) {
	o.start()
	var errs []error
	if o.breaker != nil {
		errs = append(errs, fmt.Errorf("operation %s has a breaker, and a relay finds out itself that its destination is down; "+
			"set breaker.off", o.name))
	}
	if o.policy.Retry.Attempts > 1 {
		errs = append(errs, fmt.Errorf("operation %s has %d attempts, and a relay retries by itself (MaxAttempts, BackoffBase, "+
			"BackoffMax); set retry.attempts to 1", o.name, o.policy.Retry.Attempts))
	}
	if o.policy.AbandonOnTimeout {
		errs = append(errs, fmt.Errorf("operation %s abandons calls, and the relay must know the answer of each; unset abandon_on_timeout", o.name))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("resilience: %w", errors.Join(errs...))
	}
	return limitedPublisher{p, o}, nil
}

type limitedPublisher struct {
	postrider.Publisher
	o *Operation
}

// Publish implements postrider.Publisher.
func (l limitedPublisher) Publish(ctx context.Context, msgs []*postrider.Message) (errs []error) {
	err := l.o.Run(ctx, func(ctx context.Context) error {
		errs = l.Publisher.Publish(ctx, msgs)
		return errors.Join(errs...)
	})
	if e, ok := errors.AsType[*Error](err); errs == nil && ok && e.rejected() {
		errs = slices.Repeat([]error{err}, len(msgs)) // the destination counts as unavailable, so that nothing is parked
	}
	return errs
}
