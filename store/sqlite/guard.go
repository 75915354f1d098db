package sqlite

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.Effects = (*Store)(nil)

const (
	claimEffectSQL = `INSERT INTO {prefix}effects (guard, id, token, lease_until) VALUES (?1, ?2, ?3, ?4)
		ON CONFLICT DO UPDATE SET token = excluded.token, lease_until = excluded.lease_until
		WHERE done_at IS NULL AND (token = excluded.token OR lease_until <= ?5)`
	effectSQL         = `SELECT done_at IS NOT NULL, lease_until FROM {prefix}effects WHERE guard = ? AND id = ?`
	completeEffectSQL = `UPDATE {prefix}effects SET done_at = coalesce(done_at, ?4) WHERE guard = ?1 AND id = ?2 AND token = ?3`
	freeEffectSQL     = `DELETE FROM {prefix}effects WHERE guard = ? AND id = ? AND token = ? AND done_at IS NULL`
	removeEffectsSQL  = `DELETE FROM {prefix}effects WHERE (guard, id) IN (
		SELECT guard, id FROM {prefix}effects WHERE guard = ?1 AND done_at < ?2 ORDER BY done_at LIMIT +?3)`
)

// ClaimEffect implements store.Effects.
func (s *Store) ClaimEffect(ctx context.Context, guard, id, token string, lease time.Duration) (store.EffectClaim, error) {
	var claim store.EffectClaim
	err := s.write(ctx, "claim an effect", durable, func(t txn) error {
		claim = store.EffectClaim{}
		n, err := t.exec(ctx, claimEffectSQL, guard, id, token, t.now+lease.Microseconds(), t.now)
		if claim.Granted = n > 0; err != nil || claim.Granted {
			return err
		}
		var until int64
		err = t.get(ctx, effectSQL, []any{guard, id}, &claim.Done, &until)
		if !claim.Done {
			claim.Left = stored.Duration(until - t.now)
		}
		return err
	})
	return claim, err
}

// CompleteEffect implements store.Effects.
func (s *Store) CompleteEffect(ctx context.Context, guard, id, token string) (ours bool, err error) {
	err = s.write(ctx, "complete an effect", durable, func(t txn) error {
		n, err := t.exec(ctx, completeEffectSQL, guard, id, token, t.now)
		ours = n > 0
		return err
	})
	return ours, err
}

// FreeEffect implements store.Effects.
func (s *Store) FreeEffect(ctx context.Context, guard, id, token string) error {
	return s.write(ctx, "free an effect", durable, func(t txn) error {
		_, err := t.exec(ctx, freeEffectSQL, guard, id, token)
		return err
	})
}

// RemoveEffects implements store.Effects.
func (s *Store) RemoveEffects(ctx context.Context, guard string, age time.Duration, limit int) (int, error) {
	var n int64
	err := s.write(ctx, "remove side effects", relaxed, func(t txn) (err error) {
		n, err = t.exec(ctx, removeEffectsSQL, guard, t.now-age.Microseconds(), limit)
		return err
	})
	return int(n), err
}
