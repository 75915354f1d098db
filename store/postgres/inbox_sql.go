package postgres

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
)

var _ inbox.Store[*sql.Tx] = (*SQLStore)(nil)

// Savepoint implements inbox.Transactor.
func (s *SQLStore) Savepoint(ctx context.Context, tx *sql.Tx, f func(context.Context, *sql.Tx) error) error {
	if tx == nil {
		return outbox.ErrNoTransaction
	}
	exec := func(ctx context.Context, text string) error {
		_, err := tx.ExecContext(ctx, text)
		return err
	}
	return savepoint(ctx, exec, func(ctx context.Context) error { return f(ctx, tx) })
}

// Claim implements inbox.Ledger.
func (s *SQLStore) Claim(ctx context.Context, tx *sql.Tx, consumer string, msgs []inbox.ClaimRequest) ([]inbox.ClaimResult, error) {
	return s.claim(ctx, sqlCaller{tx}, consumer, msgs)
}

// Watermark implements inbox.Ledger.
func (s *SQLStore) Watermark(ctx context.Context, tx *sql.Tx, consumer string, at postrider.Position) (inbox.Watermark, error) {
	return s.watermark(ctx, sqlCaller{tx}, consumer, at)
}

// SetWatermark implements inbox.Ledger.
func (s *SQLStore) SetWatermark(ctx context.Context, tx *sql.Tx, consumer string, at postrider.Position, consumed []byte) error {
	return s.setWatermark(ctx, sqlCaller{tx}, consumer, at, consumed)
}

// Consumed implements inbox.Ledger.
func (s *SQLStore) Consumed(ctx context.Context, tx *sql.Tx, consumer string, at postrider.Position) ([]byte, error) {
	return s.consumed(ctx, sqlCaller{tx}, consumer, at)
}

// Version implements inbox.Ledger.
func (s *SQLStore) Version(ctx context.Context, tx *sql.Tx, consumer, key string) (int64, error) {
	return s.version(ctx, sqlCaller{tx}, consumer, key)
}

// SetVersion implements inbox.Ledger.
func (s *SQLStore) SetVersion(ctx context.Context, tx *sql.Tx, consumer, key string, version int64) error {
	return s.setVersion(ctx, sqlCaller{tx}, consumer, key, version)
}

// HeldAmong implements inbox.ParkStore.
func (s *SQLStore) HeldAmong(ctx context.Context, tx *sql.Tx, consumer string, keys []string) ([]string, error) {
	return s.heldAmong(ctx, sqlCaller{tx}, consumer, keys)
}

// Park implements inbox.ParkStore.
func (s *SQLStore) Park(ctx context.Context, tx *sql.Tx, consumer string, parked []inbox.Parked) error {
	return s.park(ctx, sqlCaller{tx}, consumer, parked)
}

// DeadLetter implements inbox.ParkStore.
func (s *SQLStore) DeadLetter(ctx context.Context, tx *sql.Tx, consumer string, dead []inbox.Dead, hold bool) error {
	return s.deadLetter(ctx, sqlCaller{tx}, consumer, dead, hold)
}

// Take implements inbox.ParkStore.
func (s *SQLStore) Take(ctx context.Context, tx *sql.Tx, consumer string, m *postrider.Message) (inbox.TakeResult, error) {
	return s.take(ctx, sqlCaller{tx}, consumer, m)
}
