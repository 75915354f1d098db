package relay

import (
	"cmp"
	"context"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/store"
)

// Policy says what happens after failed attempts of messages of some types. The zero value of each field means what the
// configuration says for all types.
type Policy struct {
	// Types are patterns of message types; "*" in a pattern matches any run of characters. Default: all types.
	Types []string
	// MaxAttempts is the number of attempts before a message is dead-lettered.
	MaxAttempts int
	// Wait returns the wait before the next attempt, given the number of the failed one, from 1, and its error. It does not
	// apply to errors that ask for a wait themselves (postrider.Retry). See Fixed and Exponential.
	Wait func(attempt int, err error) time.Duration
	// Discard reports whether an error is of no interest to anybody, so that the message is discarded as with postrider.Discard,
	// with the reason IgnoredError. It is asked about errors that would be retried. Default: none is.
	Discard func(err error) bool
}

// Fixed returns a Policy.Wait that is always the same.
func Fixed(wait time.Duration) func(attempt int, err error) time.Duration {
	return func(int, error) time.Duration { return wait }
}

// Exponential returns a Policy.Wait that is random between 0 and min(limit, base·2^(n−1)) after attempt n ("full jitter").
func Exponential(base, limit time.Duration) func(attempt int, err error) time.Duration {
	return func(n int, _ error) time.Duration { return attempt.Backoff(base, limit, n) }
}

// PolicyFor returns the first of the policies that applies to a message type, or nil.
func PolicyFor(policies []Policy, messageType string) *Policy {
	for i := range policies {
		if p := &policies[i]; len(p.Types) == 0 || store.MatchTopics(p.Types, messageType) {
			return p
		}
	}
	return nil
}

// readResult reads the error of an attempt as its policy says. It calls functions of the user, so no lock may be held.
func (r *Relay) readResult(it *item, err error) (v result) {
	p := r.policyOf(it.Message.Message)
	v = readError(err)
	if p == nil || v.outcome.Kind != postrider.Retried || v.unhandled || v.follows {
		return v
	}
	defer func() {
		if x := recover(); x != nil {
			v = readError(newPanic("a function of the policy", x))
		}
	}()
	v.discarded = p.Discard != nil && p.Discard(err)
	if p.Wait != nil && v.outcome.After == 0 {
		v.outcome.After = max(p.Wait(it.Attempts+1, err), time.Millisecond)
	}
	return v
}

// policyOf returns the policy for a message, or nil. A message that cannot be decoded has none.
func (r *Relay) policyOf(m *postrider.Message) *Policy {
	if len(r.cfg.Policies) == 0 || m == nil {
		return nil
	}
	return PolicyFor(r.cfg.Policies, m.Type)
}

// maxAttempts is the number of attempts that a message has.
func (r *Relay) maxAttempts(m *postrider.Message) int {
	if p := r.policyOf(m); p != nil {
		return cmp.Or(p.MaxAttempts, r.cfg.MaxAttempts)
	}
	return r.cfg.MaxAttempts
}

// withMaxAttempts returns the context for a handler. The contexts of partitions have the number of all types.
func (r *Relay) withMaxAttempts(ctx context.Context, m *postrider.Message) context.Context {
	if p := r.policyOf(m); p != nil && p.MaxAttempts > 0 {
		return postrider.ContextWithMaxAttempts(ctx, p.MaxAttempts)
	}
	return ctx
}
