package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

var _ store.BeginBatcher[pgx.Tx] = (*Store)(nil)

// BeginClaim implements store.BeginBatcher.
func (s *Store) BeginClaim(ctx context.Context, consumer string, msgs []store.ClaimRequest) (pgx.Tx, []store.ClaimResult, error) {
	if len(msgs) == 0 {
		tx, err := s.BeginLimited(ctx, 0)
		return tx, nil, err
	}
	claim, began := s.newClaim(consumer, msgs), time.Now()
	tx, err := s.beginWith(ctx, 0, claim.queries...)
	if err != nil {
		s.endStalledStep(ctx, consumer, began, err)
		return nil, nil, translate("begin and claim messages", err)
	}
	return tx, claim.results(), nil
}
