package store

import (
	"context"
	"time"
)

// Effects records which caller runs which side effect outside the database, each call in its own transaction. Times
// are on the database's clock. storetest.Guard tests it.
type Effects interface {
	// ClaimEffect grants token the right to run a side effect until lease expires. It is granted if nobody has the right,
	// if the holder's lease has expired, or if token already has it.
	ClaimEffect(ctx context.Context, guard, id, token string, lease time.Duration) (EffectClaim, error)
	// CompleteEffect records that the side effect was run, and reports whether token still had the right to it; an
	// expired lease does no harm as long as nobody else has claimed the side effect. A repeated call reports the same.
	CompleteEffect(ctx context.Context, guard, id, token string) (bool, error)
	// FreeEffect releases token's right, if it has it and the side effect is not done.
	FreeEffect(ctx context.Context, guard, id, token string) error
	// RemoveEffects removes up to limit of a guard's side effects that were done longer than age ago, and returns how
	// many.
	RemoveEffects(ctx context.Context, guard string, age time.Duration, limit int) (int, error)
}

// EffectClaim is the result of a claim: either Granted or Done is set, or neither, while another caller has the right for
// Left.
type EffectClaim struct {
	Granted, Done bool
	Left          time.Duration
}
