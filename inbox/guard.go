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
)

// GuardStore keeps who is bringing about which effect outside the database, each call in a transaction of its own. Times
// are on the database's clock. The implementations are those of Store; storetest.Guard holds them to this contract.
type GuardStore interface {
	// ClaimEffect gives token the right to bring about an effect until lease is over. It is given if nobody has it, if the
	// lease of whoever had it is over, or if this token has it already.
	ClaimEffect(ctx context.Context, guard, id, token string, lease time.Duration) (EffectClaim, error)
	// CompleteEffect notes that the effect was brought about, and reports whether token still had the right to; a lease that
	// is over does no harm as long as nobody else has claimed the effect. The second time it reports the same.
	CompleteEffect(ctx context.Context, guard, id, token string) (bool, error)
	// FreeEffect gives token's right back, if it has it and the effect is not done.
	FreeEffect(ctx context.Context, guard, id, token string) error
	// ForgetEffects removes up to limit of a guard's effects that were done longer than age ago, and returns how many.
	ForgetEffects(ctx context.Context, guard string, age time.Duration, limit int) (int, error)
}

// EffectClaim is the answer to a claim: exactly one of Granted and Done is set, or neither, while somebody else has the
// right for Left.
type EffectClaim struct {
	Granted, Done bool
	Left          time.Duration
}

// Errors of a Guard.
var (
	// ErrEffectDone: the effect was brought about before.
	ErrEffectDone = errors.New("effect was brought about before")
	// ErrEffectBusy: somebody else is bringing it about, or died in the attempt and has his lease still.
	ErrEffectBusy = errors.New("somebody else is bringing the effect about")
	// ErrEffectTaken: the lease ended and somebody else has claimed the effect; it may come about twice.
	ErrEffectTaken = errors.New("the lease ended and somebody else has claimed the effect; give it a longer lease")
)

// Guard lets effects outside the database, such as a payment or a letter, be brought about by one process at a time and
// not again once they are done. It cannot make them happen exactly once, since no transaction spans both sides: a process
// that dies between the effect and Complete leaves it open whether the effect came about, and after the lease the next
// one tries again. The other side has to recognise that, by the idempotency key (Effect.Key), or somebody has to look
// (reconciliation).
type Guard struct {
	store        GuardStore
	cfg          GuardConfig
	hits, misses atomic.Int64
}

// GuardConfig configures a Guard. The zero value of each field means its default.
type GuardConfig struct {
	// Name tells the effects of one kind from others, e.g. "charge-card": 1 to 64 bytes. Required.
	Name string
	// Lease is how long an attempt may take before others may try. Default: 1 minute.
	Lease time.Duration
}

// NewGuard makes a guard. Errors: every fault of the configuration at once.
func NewGuard(store GuardStore, cfg GuardConfig) (*Guard, error) {
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

// Effect is one that this process has claimed. It is to be ended by Complete or Fail.
type Effect struct {
	guard     *Guard
	id, token string
}

// Claim takes the right to bring about the effect of an ID, e.g. that of a message, for the guard's Lease. Errors:
// ErrEffectDone; ErrEffectBusy, as a postrider.Retry for when the other's lease is over, so that a handler can return it;
// the store's.
func (g *Guard) Claim(ctx context.Context, id string) (*Effect, error) {
	var random [16]byte
	rand.Read(random[:]) // never fails: the program ends if the system has no randomness
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

// Key is the idempotency key to hand on to the other side: the same for every attempt at this effect, 64 hexadecimal
// digits.
func (e *Effect) Key() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", e.guard.cfg.Name, e.id))
	return hex.EncodeToString(sum[:])
}

// Complete notes that the effect was brought about. Errors: ErrEffectTaken; the store's, after which it may be called
// again.
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

// Fail gives the right back, because the effect did not come about: the next attempt need not wait for the end of the
// lease. Leave it out when that is not certain.
func (e *Effect) Fail(ctx context.Context) error {
	if err := e.guard.store.FreeEffect(ctx, e.guard.cfg.Name, e.id, e.token); err != nil {
		return fmt.Errorf("free effect %s of %s: %w", e.guard.cfg.Name, e.id, err)
	}
	return nil
}

// Do brings about the effect of an ID with do, unless it is done. The context of do ends with the lease. If do fails, the
// right is given back; what do must then be certain of is that the effect did not come about, or that the other side
// knows the key. Errors: that of do; ErrEffectBusy, as in Claim; ErrEffectTaken; the store's. An effect that is done is
// no error.
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

// Forget forgets effects that were done longer than age ago, in transactions of up to 1,000, and returns how many. Give an
// age beyond which nothing asks for them again. Errors: the store's, with what was forgotten before.
func (g *Guard) Forget(ctx context.Context, age time.Duration) (int, error) {
	return inBatches(func() (int, error) { return g.store.ForgetEffects(ctx, g.cfg.Name, age, forgetBatch) })
}

// Lookups returns how many claims found the effect done or somebody at it (hits), and how many were granted (misses).
func (g *Guard) Lookups() (hits, misses int64) { return g.hits.Load(), g.misses.Load() }
