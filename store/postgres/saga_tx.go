package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
)

var (
	_ store.SagaStore[pgx.Tx]    = (*Store)(nil)
	_ store.SagaRecords[pgx.Tx]  = (*Store)(nil)
	_ store.SagaStore[*sql.Tx]   = (*SQLStore)(nil)
	_ store.SagaRecords[*sql.Tx] = (*SQLStore)(nil)
)

// LoadSagas implements store.SagaStore.
func (s *Store) LoadSagas(ctx context.Context, tx pgx.Tx, runs []string) ([]store.SagaInstance, error) {
	return s.loadSagas(ctx, pgxCaller{tx}, runs)
}

// FindSagas implements store.SagaStore.
func (s *Store) FindSagas(ctx context.Context, tx pgx.Tx, lookups []store.SagaLookup) ([]string, error) {
	return s.findSagas(ctx, pgxCaller{tx}, lookups)
}

// CreateSagas implements store.SagaStore.
func (s *Store) CreateSagas(ctx context.Context, tx pgx.Tx, starts []store.SagaStart) ([]*store.SagaInstance, error) {
	return s.createSagas(ctx, pgxCaller{tx}, starts)
}

// SaveSagas implements store.SagaStore.
func (s *Store) SaveSagas(ctx context.Context, tx pgx.Tx, changes []store.SagaChange) error {
	return s.saveSagas(ctx, pgxCaller{tx}, changes)
}

// SetSagaVersion implements store.SagaStore.
func (s *Store) SetSagaVersion(ctx context.Context, tx pgx.Tx, run string, version int, hash string) error {
	return s.setSagaVersion(ctx, pgxCaller{tx}, run, version, hash)
}

// LockSagaRecords implements store.SagaRecords.
func (s *Store) LockSagaRecords(ctx context.Context, tx pgx.Tx, participant string, steps []store.SagaStep) ([]store.SagaRecord, time.Time, error) {
	return s.lockSagaRecords(ctx, pgxCaller{tx}, participant, steps)
}

// SaveSagaRecords implements store.SagaRecords.
func (s *Store) SaveSagaRecords(ctx context.Context, tx pgx.Tx, participant string, records []store.SagaRecord) error {
	return s.saveSagaRecords(ctx, pgxCaller{tx}, participant, records)
}

// CloseSagaRuns implements store.SagaRecords.
func (s *Store) CloseSagaRuns(ctx context.Context, tx pgx.Tx, participant string, runs []string) error {
	return s.closeSagaRuns(ctx, pgxCaller{tx}, participant, runs)
}

// LoadSagas implements store.SagaStore.
func (s *SQLStore) LoadSagas(ctx context.Context, tx *sql.Tx, runs []string) ([]store.SagaInstance, error) {
	return s.loadSagas(ctx, sqlCaller{tx}, runs)
}

// FindSagas implements store.SagaStore.
func (s *SQLStore) FindSagas(ctx context.Context, tx *sql.Tx, lookups []store.SagaLookup) ([]string, error) {
	return s.findSagas(ctx, sqlCaller{tx}, lookups)
}

// CreateSagas implements store.SagaStore.
func (s *SQLStore) CreateSagas(ctx context.Context, tx *sql.Tx, starts []store.SagaStart) ([]*store.SagaInstance, error) {
	return s.createSagas(ctx, sqlCaller{tx}, starts)
}

// SaveSagas implements store.SagaStore.
func (s *SQLStore) SaveSagas(ctx context.Context, tx *sql.Tx, changes []store.SagaChange) error {
	return s.saveSagas(ctx, sqlCaller{tx}, changes)
}

// SetSagaVersion implements store.SagaStore.
func (s *SQLStore) SetSagaVersion(ctx context.Context, tx *sql.Tx, run string, version int, hash string) error {
	return s.setSagaVersion(ctx, sqlCaller{tx}, run, version, hash)
}

// LockSagaRecords implements store.SagaRecords.
func (s *SQLStore) LockSagaRecords(ctx context.Context, tx *sql.Tx, participant string, steps []store.SagaStep) ([]store.SagaRecord, time.Time, error) {
	return s.lockSagaRecords(ctx, sqlCaller{tx}, participant, steps)
}

// SaveSagaRecords implements store.SagaRecords.
func (s *SQLStore) SaveSagaRecords(ctx context.Context, tx *sql.Tx, participant string, records []store.SagaRecord) error {
	return s.saveSagaRecords(ctx, sqlCaller{tx}, participant, records)
}

// CloseSagaRuns implements store.SagaRecords.
func (s *SQLStore) CloseSagaRuns(ctx context.Context, tx *sql.Tx, participant string, runs []string) error {
	return s.closeSagaRuns(ctx, sqlCaller{tx}, participant, runs)
}
