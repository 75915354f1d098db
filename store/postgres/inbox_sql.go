package postgres

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

var _ store.Inbox[*sql.Tx] = (*SQLStore)(nil)

// Savepoint implements store.Transactor.
func (s *SQLStore) Savepoint(ctx context.Context, tx *sql.Tx, f func(context.Context, *sql.Tx) error) error {
	if tx == nil {
		return store.ErrNoTransaction
	}
	exec := func(ctx context.Context, text string) error {
		_, err := tx.ExecContext(ctx, text)
		return err
	}
	return savepoint(ctx, exec, func(ctx context.Context) error { return f(ctx, tx) })
}

// Claim implements store.Ledger.
func (s *SQLStore) Claim(ctx context.Context, tx *sql.Tx, consumer string, msgs []store.ClaimRequest) ([]store.ClaimResult, error) {
	return s.claim(ctx, sqlCaller{tx}, consumer, msgs)
}

// Version implements store.Ledger.
func (s *SQLStore) Version(ctx context.Context, tx *sql.Tx, consumer, key string) (int64, error) {
	return s.version(ctx, sqlCaller{tx}, consumer, key)
}

// SetVersion implements store.Ledger.
func (s *SQLStore) SetVersion(ctx context.Context, tx *sql.Tx, consumer, key string, version int64) error {
	return s.setVersion(ctx, sqlCaller{tx}, consumer, key, version)
}

// Park implements store.Parker.
func (s *SQLStore) Park(ctx context.Context, tx *sql.Tx, consumer string, failed []store.ParkRequest) error {
	return s.park(ctx, sqlCaller{tx}, consumer, failed)
}

// Take implements store.Parker.
func (s *SQLStore) Take(ctx context.Context, tx *sql.Tx, consumer string, m *postrider.Message) (store.TakeResult, error) {
	return s.take(ctx, sqlCaller{tx}, consumer, m)
}
