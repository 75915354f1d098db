package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/store"
)

var _ store.Effects = (*Store)(nil)

// The statements of guarded side effects: $1 guard, $2 id, $3 token, $4 lease in microseconds. Each runs in a transaction of its
// own, except effectSQL, which follows claimEffectSQL.
const (
	// claimEffectSQL returns a row if the claim is granted; it waits for a concurrent claim.
	claimEffectSQL = `
insert into {effects} as e (guard, id, token, lease_until)
values ($1::text, $2::text, $3::text, clock_timestamp() + $4::float8 * interval '1 microsecond')
on conflict (guard, id) do update set token = excluded.token, lease_until = excluded.lease_until
where e.done_at is null and (e.token = excluded.token or e.lease_until <= clock_timestamp())
returning true`

	// effectSQL says why a claim was not granted, and for how long. It runs in the same transaction, which has locked the row.
	effectSQL = `
select done_at is not null, greatest((extract(epoch from lease_until - clock_timestamp()) operator(pg_catalog.*) 1000000)::int8, 1)
from {effects} where guard = $1::text and id = $2::text`

	completeEffectSQL = `
update {effects} set done_at = coalesce(done_at, clock_timestamp()) where guard = $1::text and id = $2::text and token = $3::text`

	freeEffectSQL = `
delete from {effects} where guard = $1::text and id = $2::text and token = $3::text and done_at is null`

	// removeEffectsSQL: $1 guard, $2 age in microseconds, $3 limit.
	removeEffectsSQL = `
delete from {effects} where done_at is not null and ctid = any(array(
	select ctid from {effects} where guard = $1::text
		and done_at < statement_timestamp() - $2::float8 * interval '1 microsecond'
	order by done_at limit $3::int8))`
)

// ClaimEffect implements store.Effects. Both statements run in one round trip and one transaction.
func (s *Store) ClaimEffect(ctx context.Context, guard, id, token string, lease time.Duration) (store.EffectClaim, error) {
	if _, err := s.open(ctx); err != nil {
		return store.EffectClaim{}, err
	}
	claim, err := retry(func() (claim store.EffectClaim, err error) {
		err = s.runQueries(ctx,
			query{sql: s.names.expand(claimEffectSQL), args: []any{guard, id, token, lease.Microseconds()},
				row: func(scan func(...any) error) error { return scan(&claim.Granted) }},
			query{sql: s.names.expand(effectSQL), args: []any{guard, id}, row: func(scan func(...any) error) error {
				var micros int64
				err := scan(&claim.Done, &micros)
				claim.Left = time.Duration(micros) * time.Microsecond
				return err
			}})
		return claim, err
	})
	if claim.Granted || claim.Done {
		claim.Left = 0 // the remaining time is meant for others
	}
	return claim, translate("claim an effect", err)
}

// CompleteEffect implements store.Effects.
func (s *Store) CompleteEffect(ctx context.Context, guard, id, token string) (bool, error) {
	n, err := s.changeEffect(ctx, completeEffectSQL, guard, id, token)
	return n > 0, translate("complete an effect", err)
}

// FreeEffect implements store.Effects.
func (s *Store) FreeEffect(ctx context.Context, guard, id, token string) error {
	_, err := s.changeEffect(ctx, freeEffectSQL, guard, id, token)
	return translate("free an effect", err)
}

func (s *Store) changeEffect(ctx context.Context, text, guard, id, token string) (int64, error) {
	if _, err := s.open(ctx); err != nil {
		return 0, err
	}
	tag, err := s.pool.Exec(ctx, s.names.expand(text), guard, id, token)
	return tag.RowsAffected(), err
}

// RemoveEffects implements store.Effects.
func (s *Store) RemoveEffects(ctx context.Context, guard string, age time.Duration, limit int) (int, error) {
	n, err := s.removeOld(ctx, removeEffectsSQL, guard, age, limit)
	return n, translate(fmt.Sprintf("remove side effects of guard %q", guard), err)
}
