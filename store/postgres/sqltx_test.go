package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store/postgres"
	"github.com/postrider/postrider/store/storetest"
)

// sqlTxBundle is a bundle whose transactions are those of database/sql.
type sqlTxBundle struct {
	*postgres.SQLTxStore
	b *bundle
}

// onSQLTx opens a store with transactions of database/sql next to a bundle's.
func onSQLTx(t testing.TB, b *bundle) *sqlTxBundle {
	t.Helper()
	db, err := sql.Open("pgx", b.dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(40)
	t.Cleanup(func() { _ = db.Close() })
	s, err := b.SQLTx(context.Background(), db)
	if err != nil {
		t.Fatal(err)
	}
	return &sqlTxBundle{s, b}
}

func sqlTxHarness(dsn string) storetest.Harness[*sql.Tx] {
	under := harness(dsn)
	h := sqlHarness(dsn, "pgx")
	h.Open = func(t testing.TB, partitions int) storetest.Store[*sql.Tx] {
		return onSQLTx(t, under.Open(t, partitions).(*bundle))
	}
	h.Reopen = func(t testing.TB, s storetest.Store[*sql.Tx]) storetest.Store[*sql.Tx] {
		return onSQLTx(t, under.Reopen(t, s.(*sqlTxBundle).b).(*bundle))
	}
	h.InsertUndecodable = func(context.Context, storetest.Store[*sql.Tx], *sql.Tx, *postrider.Message) error {
		panic("no test of HandleTx writes such rows")
	}
	return h
}

func TestSQLTxNeedsTheDriver(t *testing.T) {
	t.Parallel()
	b := cloned(t, dsn(t), postgres.Config{}, 4)
	db, err := sql.Open("postgres", withParam(t, b.dsn, "sslmode", "disable")) // lib/pq
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := b.SQLTx(t.Context(), db); !errors.Is(err, postgres.ErrDriver) {
		t.Errorf("error %v, want ErrDriver", err)
	}
}

// TestRollbackOnDatabaseSQLWhenItsContextEnds: database/sql rolls back at the same time. The race detector finds what both do to the
// connection.
func TestRollbackOnDatabaseSQLWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	notInShort(t)
	s := onSQLTx(t, cloned(t, dsn(t), postgres.Config{}, 4))
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		tx, err := s.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		_ = s.Rollback(t.Context(), tx) // database/sql may have been first
	}
	tx, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), tx); err != nil {
		t.Errorf("a transaction after them: %v", err)
	}
}
