package memory

import (
	"context"
	"time"

	"github.com/postrider/postrider/store"
)

var _ store.Effects = (*Store)(nil)

// effectRow records who runs a side effect, or that it is done.
type effectRow struct {
	token string
	until time.Time // of the lease
	done  time.Time // zero until it is done
}

// ClaimEffect implements store.Effects.
func (s *Store) ClaimEffect(ctx context.Context, guard, id, token string, lease time.Duration) (store.EffectClaim, error) {
	return do(ctx, s, "ClaimEffect", func(db *database) (store.EffectClaim, error) {
		effects, at := db.inbox(guard).effects, now()
		row := effects[id]
		switch {
		case row != nil && !row.done.IsZero():
			return store.EffectClaim{Done: true}, nil
		case row != nil && row.token != token && row.until.After(at):
			return store.EffectClaim{Left: row.until.Sub(at)}, nil
		}
		effects[id] = &effectRow{token: token, until: at.Add(lease)}
		return store.EffectClaim{Granted: true}, nil
	})
}

// CompleteEffect implements store.Effects.
func (s *Store) CompleteEffect(ctx context.Context, guard, id, token string) (bool, error) {
	return do(ctx, s, "CompleteEffect", func(db *database) (bool, error) {
		row := db.inbox(guard).effects[id]
		if row == nil || row.token != token {
			return false, nil
		}
		if row.done.IsZero() {
			row.done = now()
		}
		return true, nil
	})
}

// FreeEffect implements store.Effects.
func (s *Store) FreeEffect(ctx context.Context, guard, id, token string) error {
	_, err := do(ctx, s, "FreeEffect", func(db *database) (struct{}, error) {
		effects := db.inbox(guard).effects
		if row := effects[id]; row != nil && row.token == token && row.done.IsZero() {
			delete(effects, id)
		}
		return struct{}{}, nil
	})
	return err
}

// RemoveEffects implements store.Effects.
func (s *Store) RemoveEffects(ctx context.Context, guard string, age time.Duration, limit int) (int, error) {
	return do(ctx, s, "RemoveEffects", func(db *database) (int, error) {
		effects, before, n := db.inbox(guard).effects, now().Add(-age), 0
		for id, row := range effects {
			if n < limit && !row.done.IsZero() && row.done.Before(before) {
				delete(effects, id)
				n++
			}
		}
		return n, nil
	})
}
