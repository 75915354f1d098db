package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

var _ store.BeginBatcher[pgx.Tx] = (*Store)(nil)

// BeginClaim implements store.BeginBatcher.
func (s *Store) BeginClaim(ctx context.Context, consumer string, msgs []store.ClaimRequest) (pgx.Tx, []store.ClaimResult, error) {
	if len(msgs) == 0 {
		tx, err := s.BeginLimited(ctx, 0)
		return tx, nil, err
	}
	claim := s.newClaim(consumer, msgs)
	tx, err := s.beginWith(ctx, 0, claim.queries...)
	if err != nil {
		return nil, nil, translate("begin and claim messages", err)
	}
	return tx, claim.results(), nil
}

// BeginWatermark implements store.BeginBatcher.
func (s *Store) BeginWatermark(ctx context.Context, consumer string, at postrider.Position, consumed []byte, keys []string) (
	tx pgx.Tx, before store.Watermark, held []string, err error,
) {
	steps := []query{
		{sql: s.sql.lockMark, args: []any{consumer, at.Partition, at.Incarnation}},
		s.readMark(consumer, at, &before),
		moveMark(s.sql.passMark, consumer, at, consumed),
	}
	if len(keys) > 0 {
		steps = append(steps, s.lookForHeld(consumer, keys, &held))
	}
	if tx, err = s.beginWith(ctx, 0, steps...); err != nil {
		return nil, before, nil, translate("begin and move a watermark", err)
	}
	if before.Known {
		return tx, before, held, nil
	}
	if before, err = s.firstWatermark(ctx, tx, consumer, at, consumed); err == nil && len(keys) > 0 {
		held, err = s.HeldAmong(ctx, tx, consumer, keys)
	}
	if err != nil {
		return nil, before, nil, errors.Join(err, s.Rollback(context.WithoutCancel(ctx), tx))
	}
	return tx, before, held, nil
}

// firstWatermark moves a watermark that did not exist and so could not be locked: once per log. Another process may create it
// meanwhile.
func (s *Store) firstWatermark(ctx context.Context, tx pgx.Tx, consumer string, at postrider.Position, consumed []byte) (
	store.Watermark, error,
) {
	before, err := s.Watermark(ctx, tx, consumer, at)
	if err == nil && (!before.Known || before.Offset < at.Offset) {
		err = s.SetWatermark(ctx, tx, consumer, at, consumed)
	}
	return before, err
}
