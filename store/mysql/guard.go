package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.Effects = (*Store)(nil)

const (
	makeEffectSQL = `INSERT INTO {prefix}effects (guard, id, token, lease_until) VALUES (?, ?, '', 0)
		ON DUPLICATE KEY UPDATE guard = VALUES(guard)`
	lockEffectSQL    = `SELECT token, lease_until, done_at IS NOT NULL FROM {prefix}effects WHERE guard = ? AND id = ? FOR UPDATE`
	claimEffectSQL   = `UPDATE {prefix}effects SET token = ?3, lease_until = ?4 WHERE guard = ?1 AND id = ?2`
	doneEffectSQL    = `UPDATE {prefix}effects SET done_at = {now} WHERE guard = ? AND id = ?`
	freeEffectSQL    = `DELETE FROM {prefix}effects WHERE guard = ? AND id = ? AND token = ? AND done_at IS NULL`
	removeEffectsSQL = `DELETE FROM {prefix}effects WHERE guard = ?1 AND done_at < {now} - ?2 ORDER BY done_at LIMIT ?3`
)

// effect is a locked row.
type effect struct {
	token string
	until int64
	done  bool
}

func (t txn) lockEffect(ctx context.Context, guard, id string) (e effect, err error) {
	err = t.get(ctx, lockEffectSQL, []any{guard, id}, &e.token, &e.until, &e.done)
	return e, err
}

// ClaimEffect implements store.Effects.
func (s *Store) ClaimEffect(ctx context.Context, guard, id, token string, lease time.Duration) (store.EffectClaim, error) {
	var claim store.EffectClaim
	err := s.write(ctx, "claim an effect", func(t txn) error {
		claim = store.EffectClaim{}
		if _, err := t.exec(ctx, makeEffectSQL, guard, id); err != nil {
			return err
		}
		e, err := t.lockEffect(ctx, guard, id)
		if errors.Is(err, sql.ErrNoRows) { // freed in between
			return errGone
		}
		if err != nil {
			return err
		}
		if err := t.look(ctx); err != nil { // after waiting for the lock
			return err
		}
		switch {
		case e.done:
			claim.Done = true
		case e.token != token && e.until > t.now:
			claim.Left = stored.Duration(e.until - t.now)
		default:
			claim.Granted = true
			_, err = t.exec(ctx, claimEffectSQL, guard, id, token, t.now+lease.Microseconds())
		}
		return err
	})
	if errors.Is(err, errGone) {
		return s.ClaimEffect(ctx, guard, id, token, lease)
	}
	return claim, err
}

// errGone: a row that existed is gone.
var errGone = errors.New("the row is gone")

// CompleteEffect implements store.Effects.
func (s *Store) CompleteEffect(ctx context.Context, guard, id, token string) (ours bool, err error) {
	err = s.write(ctx, "complete an effect", func(t txn) error {
		e, err := t.lockEffect(ctx, guard, id)
		if ours = err == nil && e.token == token; !ours || e.done {
			return stored.OrNone(err)
		}
		_, err = t.exec(ctx, doneEffectSQL, guard, id)
		return err
	})
	return ours, err
}

// FreeEffect implements store.Effects.
func (s *Store) FreeEffect(ctx context.Context, guard, id, token string) error {
	return s.write(ctx, "free an effect", func(t txn) error {
		_, err := t.exec(ctx, freeEffectSQL, guard, id, token)
		return err
	})
}

// RemoveEffects implements store.Effects.
func (s *Store) RemoveEffects(ctx context.Context, guard string, age time.Duration, limit int) (int, error) {
	var n int64
	err := s.write(ctx, "remove side effects", func(t txn) (err error) {
		n, err = t.exec(ctx, removeEffectsSQL, guard, age.Microseconds(), limit)
		return err
	})
	return int(n), err
}
