// Package guard runs side effects outside the database, such as a payment or an email, in one process at a time, and not again once
// they are done.
//
//	g, err := guard.New(store, guard.Config{Name: "charge-card"})
//	...
//	err = g.Do(ctx, m.ID, func(ctx context.Context, key string) error { return payments.Charge(ctx, amount, key) })
//
// A guard cannot make a side effect happen exactly once, since no transaction spans both systems: if a process crashes between the
// side effect and [Claim.Complete], or gives up waiting for the other system's answer, it is unknown whether the side effect
// happened, and after the lease the next process tries again. The other system has to detect that by the idempotency key ([Claim.Key]), or someone has to check (reconciliation).
package guard

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/attempt"
	"github.com/postrider/postrider/store"
)

// Errors of a Guard.
var (
	// ErrDone: the side effect was run before.
	ErrDone = errors.New("side effect was run before")
	// ErrBusy: another caller is running it, or has crashed while its lease is still valid.
	ErrBusy = errors.New("another caller is running the side effect")
	// ErrTaken: the lease expired and another caller has claimed the side effect; it may run twice.
	ErrTaken = errors.New("the lease expired and another caller has claimed the side effect; configure a longer lease")
)

// Guard guards the side effects of one kind. It is safe for concurrent use.
type Guard struct {
	store        store.Effects
	cfg          Config
	hits, misses atomic.Int64
	removeAt     atomic.Int64 // when old side effects are removed next, in Unix nanoseconds
}

// Config configures a Guard. The zero value of each field means its default.
type Config struct {
	// Name identifies a kind of side effect, e.g. "charge-card": 1 to 64 bytes. Required.
	Name string
	// Lease is how long an attempt may take before others may try. Default: 1 minute.
	Lease time.Duration
	// Keep is how long the guard remembers that a side effect was run: a later claim of its ID runs it again. Once a minute,
	// a call of Complete removes what is older. Default: 90 days; negative: forever, or until RemoveOlder.
	Keep time.Duration
}

// New returns a guard. It reports all configuration errors at once.
func New(store store.Effects, cfg Config) (*Guard, error) {
	var errs []error
	if store == nil {
		errs = append(errs, errors.New("guard: New needs a store"))
	}
	if cfg.Name == "" || len(cfg.Name) > 64 {
		errs = append(errs, fmt.Errorf("guard: Name must have 1 to 64 bytes, has %d", len(cfg.Name)))
	}
	if cfg.Lease < 0 {
		errs = append(errs, fmt.Errorf("guard: Lease must not be negative, is %s", cfg.Lease))
	}
	cfg.Lease = cmp.Or(cfg.Lease, time.Minute)
	cfg.Keep = cmp.Or(cfg.Keep, 90*24*time.Hour)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Guard{store: store, cfg: cfg}, nil
}

// Claim is the right to run a side effect. End it by Complete or Fail.
type Claim struct {
	guard     *Guard
	id, token string
}

// Claim acquires the right to run the side effect of an ID, e.g. that of a message, for the guard's Lease. Errors: ErrDone;
// ErrBusy, as a postrider.Retry that waits for the end of the other's lease, so that a handler can return it; the store's.
func (g *Guard) Claim(ctx context.Context, id string) (*Claim, error) {
	var random [16]byte
	rand.Read(random[:]) // never fails: the program crashes if the system has no randomness
	c := &Claim{guard: g, id: id, token: hex.EncodeToString(random[:])}
	claim, err := g.store.ClaimEffect(ctx, g.cfg.Name, id, c.token, g.cfg.Lease)
	switch {
	case err != nil:
		return nil, fmt.Errorf("claim side effect %s of %s: %w", g.cfg.Name, id, err)
	case claim.Done:
		g.hits.Add(1)
		return nil, fmt.Errorf("side effect %s of %s: %w", g.cfg.Name, id, ErrDone)
	case !claim.Granted:
		g.hits.Add(1)
		return nil, postrider.Retry(claim.Left, fmt.Errorf("side effect %s of %s: %w", g.cfg.Name, id, ErrBusy))
	}
	g.misses.Add(1)
	return c, nil
}

// Key is the idempotency key to pass to the other system: the same for every attempt at this side effect, 64 hexadecimal
// digits.
func (c *Claim) Key() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", c.guard.cfg.Name, c.id))
	return hex.EncodeToString(sum[:])
}

// Complete records that the side effect was run. Errors: ErrTaken; the store's, after which it may be called again.
func (c *Claim) Complete(ctx context.Context) error {
	ours, err := c.guard.store.CompleteEffect(ctx, c.guard.cfg.Name, c.id, c.token)
	if err == nil && !ours {
		err = ErrTaken
	}
	if err != nil {
		return fmt.Errorf("complete side effect %s of %s: %w", c.guard.cfg.Name, c.id, err)
	}
	c.guard.removeOld(ctx)
	return nil
}

// removeEvery is the time between removals of old side effects.
const removeEvery = time.Minute

// removeOld removes side effects older than Keep, at most removeBatch of them; if there are more, the next call continues. If it
// fails, so that they stay for another minute, the side effect that was just completed is not affected.
func (g *Guard) removeOld(ctx context.Context) {
	now, next := time.Now(), g.removeAt.Load()
	if g.cfg.Keep < 0 || now.UnixNano() < next || !g.removeAt.CompareAndSwap(next, now.Add(removeEvery).UnixNano()) {
		return
	}
	if n, err := g.store.RemoveEffects(ctx, g.cfg.Name, g.cfg.Keep, removeBatch); err == nil && n == removeBatch {
		g.removeAt.Store(now.UnixNano())
	}
}

// Fail releases the right, because the side effect did not happen: the next attempt need not wait for the end of the
// lease. Do not call it if that is uncertain.
func (c *Claim) Fail(ctx context.Context) error {
	if err := c.guard.store.FreeEffect(ctx, c.guard.cfg.Name, c.id, c.token); err != nil {
		return fmt.Errorf("release side effect %s of %s: %w", c.guard.cfg.Name, c.id, err)
	}
	return nil
}

// Do runs the side effect of an ID with do, unless it is done. The context of do ends with the lease.
//
// If do fails within its context, the right is released and the next attempt may begin at once, so such an error must mean that
// the side effect did not happen, or that the other system knows the key. If the context of do ended, or its error is a
// context's (a timeout of its own), the request may have arrived: the right is kept, and others get ErrBusy until the lease ends.
//
// If do succeeds and the database cannot be reached, Do tries for 12 seconds to record that, since it would be run again after the lease.
//
// Errors: that of do; ErrBusy, as in Claim; ErrTaken; the store's. A side effect that is already done is not an error.
func (g *Guard) Do(ctx context.Context, id string, do func(ctx context.Context, key string) error) error {
	leased := time.Now() // the store's lease begins later
	c, err := g.Claim(ctx, id)
	if errors.Is(err, ErrDone) {
		return nil
	}
	if err != nil {
		return err
	}
	bounded, cancel := context.WithDeadline(ctx, leased.Add(g.cfg.Lease))
	defer cancel()
	err = do(bounded, c.Key())
	switch {
	case err == nil:
		return c.recorded(context.WithoutCancel(ctx))
	case bounded.Err() != nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	default:
		free, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		return errors.Join(err, c.Fail(free))
	}
}

// What became of a side effect is recorded even if the caller's context has ended, so the store's calls have limits of their own. The
// connection of one that was not answered may be dead, and the next one gets another.
const (
	callTimeout  = 3 * time.Second
	recordWithin = 4 * callTimeout
)

// recorded records that the side effect was run. It tries again for a while: one that is not recorded is run again after the lease.
func (c *Claim) recorded(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recordWithin)
	defer cancel()
	for n := 1; ; n++ {
		call, end := context.WithTimeout(ctx, callTimeout)
		err := c.Complete(call)
		end()
		if err == nil || errors.Is(err, ErrTaken) || !attempt.Sleep(ctx, attempt.Backoff(50*time.Millisecond, time.Second, n)) {
			return err
		}
	}
}

// removeBatch is how many side effects are removed in one transaction.
const removeBatch = 1_000

// RemoveOlder removes side effects that were done longer than age ago, in transactions of up to 1,000, and returns how many. The
// guard removes those older than Config.Keep by itself. Choose an age after which nothing claims them again. Errors: the store's;
// the count of those removed before is returned too.
func (g *Guard) RemoveOlder(ctx context.Context, age time.Duration) (total int, err error) {
	for n := removeBatch; n == removeBatch && err == nil; total += n {
		n, err = g.store.RemoveEffects(ctx, g.cfg.Name, age, removeBatch)
	}
	return total, err
}

// Lookups returns how many claims found the side effect done or busy (hits), and how many were granted (misses).
func (g *Guard) Lookups() (hits, misses int64) { return g.hits.Load(), g.misses.Load() }
