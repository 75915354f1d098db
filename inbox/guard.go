package inbox

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// Errors of a Guard.
var (
	// ErrEffectDone: the side effect was run before.
	ErrEffectDone = errors.New("effect was brought about before")
	// ErrEffectBusy: another caller is running it, or has crashed while its lease is still valid.
	ErrEffectBusy = errors.New("somebody else is bringing the effect about")
	// ErrEffectTaken: the lease expired and another caller has claimed the side effect; it may run twice.
	ErrEffectTaken = errors.New("the lease ended and somebody else has claimed the effect; give it a longer lease")
)

// Guard lets side effects outside the database, such as a payment or an email, be run by one process at a time and not
// again once they are done. It cannot make them happen exactly once, since no transaction spans both systems: if a
// process crashes between the side effect and Complete, it is unknown whether the side effect happened, and after the
// lease the next process tries again. The other system has to detect that by the idempotency key (Effect.Key), or someone
// has to check (reconciliation).
type Guard struct {
	store        store.Effects
	cfg          GuardConfig
	hits, misses atomic.Int64
}

// GuardConfig configures a Guard. The zero value of each field means its default.
type GuardConfig struct {
	// Name identifies a kind of side effect, e.g. "charge-card": 1 to 64 bytes. Required.
	Name string
	// Lease is how long an attempt may take before others may try. Default: 1 minute.
	Lease time.Duration
}

// NewGuard returns a guard. It reports all configuration errors at once.
func NewGuard(store store.Effects, cfg GuardConfig) (*Guard, error) {
	var faults []error
	if store == nil {
		faults = append(faults, errors.New("inbox: a guard needs a store"))
	}
	if cfg.Name == "" || len(cfg.Name) > 64 {
		faults = append(faults, fmt.Errorf("inbox: a guard's Name must have 1 to 64 bytes, has %d", len(cfg.Name)))
	}
	if cfg.Lease < 0 {
		faults = append(faults, fmt.Errorf("inbox: a guard's Lease must not be negative, is %s", cfg.Lease))
	}
	if cfg.Lease == 0 {
		cfg.Lease = time.Minute
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return &Guard{store: store, cfg: cfg}, nil
}

// Effect is a side effect that this process has claimed. End it by Complete or Fail.
type Effect struct {
	guard     *Guard
	id, token string
}

// Claim acquires the right to run the side effect of an ID, e.g. that of a message, for the guard's Lease. Errors:
// ErrEffectDone; ErrEffectBusy, as a postrider.Retry that waits for the end of the other's lease, so that a handler can
// return it; the store's.
func (g *Guard) Claim(ctx context.Context, id string) (*Effect, error) {
	var random [16]byte
	rand.Read(random[:]) // never fails: the program crashes if the system has no randomness
	e := &Effect{guard: g, id: id, token: hex.EncodeToString(random[:])}
	claim, err := g.store.ClaimEffect(ctx, g.cfg.Name, id, e.token, g.cfg.Lease)
	switch {
	case err != nil:
		return nil, fmt.Errorf("claim effect %s of %s: %w", g.cfg.Name, id, err)
	case claim.Done:
		g.hits.Add(1)
		return nil, fmt.Errorf("effect %s of %s: %w", g.cfg.Name, id, ErrEffectDone)
	case !claim.Granted:
		g.hits.Add(1)
		return nil, postrider.Retry(claim.Left, fmt.Errorf("effect %s of %s: %w", g.cfg.Name, id, ErrEffectBusy))
	}
	g.misses.Add(1)
	return e, nil
}

// Key is the idempotency key to pass to the other system: the same for every attempt at this side effect, 64 hexadecimal
// digits.
func (e *Effect) Key() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", e.guard.cfg.Name, e.id))
	return hex.EncodeToString(sum[:])
}

// Complete records that the side effect was run. Errors: ErrEffectTaken; the store's, after which it may be called again.
func (e *Effect) Complete(ctx context.Context) error {
	ours, err := e.guard.store.CompleteEffect(ctx, e.guard.cfg.Name, e.id, e.token)
	if err == nil && !ours {
		err = ErrEffectTaken
	}
	if err != nil {
		return fmt.Errorf("complete effect %s of %s: %w", e.guard.cfg.Name, e.id, err)
	}
	return nil
}

// Fail releases the right, because the side effect did not happen: the next attempt need not wait for the end of the
// lease. Do not call it if that is uncertain.
func (e *Effect) Fail(ctx context.Context) error {
	if err := e.guard.store.FreeEffect(ctx, e.guard.cfg.Name, e.id, e.token); err != nil {
		return fmt.Errorf("free effect %s of %s: %w", e.guard.cfg.Name, e.id, err)
	}
	return nil
}

// Do runs the side effect of an ID with do, unless it is done. The context of do ends with the lease. If do fails, the
// right is released, so do may only fail if the side effect did not happen or the other system knows the key. Errors:
// that of do; ErrEffectBusy, as in Claim; ErrEffectTaken; the store's. A side effect that is already done is not an
// error.
func (g *Guard) Do(ctx context.Context, id string, do func(ctx context.Context, key string) error) error {
	e, err := g.Claim(ctx, id)
	if errors.Is(err, ErrEffectDone) {
		return nil
	}
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, g.cfg.Lease)
	defer cancel()
	if err := do(bounded, e.Key()); err != nil {
		return errors.Join(err, e.Fail(context.WithoutCancel(ctx)))
	}
	return e.Complete(context.WithoutCancel(ctx))
}

// Forget removes side effects that were done longer than age ago, in transactions of up to 1,000, and returns how many.
// Choose an age after which nothing claims them again. Errors: the store's; the count of those removed before is returned
// too.
func (g *Guard) Forget(ctx context.Context, age time.Duration) (int, error) {
	return inBatches(func() (int, error) { return g.store.ForgetEffects(ctx, g.cfg.Name, age, forgetBatch) })
}

// Lookups returns how many claims found the side effect done or busy (hits), and how many were granted (misses).
func (g *Guard) Lookups() (hits, misses int64) { return g.hits.Load(), g.misses.Load() }
