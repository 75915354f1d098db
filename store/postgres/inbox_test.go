package postgres_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/store/postgres"
	"github.com/postrider/postrider/store/storetest"
)

var inboxFeatures = storetest.Features{CoarseRetention: coarse}

func TestInbox(t *testing.T) {
	t.Parallel()
	storetest.Inbox(t, inboxFeatures, harness(dsn(t)))
}

func TestInboxWithSimpleProtocol(t *testing.T) {
	t.Parallel()
	storetest.Inbox(t, inboxFeatures, harness(withParam(t, dsn(t), "default_query_exec_mode", "simple_protocol")))
}

func TestInboxBehindPgBouncer(t *testing.T) {
	t.Parallel()
	storetest.Inbox(t, inboxFeatures, harness(withParam(t, startPgBouncer(t), "default_query_exec_mode", "exec")))
}

// sqlBundle is a bundle whose transactions are those of database/sql.
type sqlBundle struct {
	*postgres.SQLStore
	b *bundle
}

// sqlHarness uses a driver of database/sql.
func sqlHarness(dsn, driver string) storetest.Harness[*sql.Tx] {
	open := func(t testing.TB, b *bundle) *sqlBundle {
		if driver == "postgres" { // lib/pq asks for TLS unless told otherwise
			dsn = withParam(t, dsn, "sslmode", "disable")
		}
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return &sqlBundle{SQLStore: b.SQL(db), b: b}
	}
	under := harness(dsn)
	return storetest.Harness[*sql.Tx]{
		Open: func(t testing.TB, partitions int) storetest.Store[*sql.Tx] {
			return open(t, under.Open(t, partitions).(*bundle))
		},
		Reopen: func(t testing.TB, s storetest.Store[*sql.Tx]) storetest.Store[*sql.Tx] {
			return open(t, under.Reopen(t, s.(*sqlBundle).b).(*bundle))
		},
		Savepoint: func(ctx context.Context, tx *sql.Tx, name string) error {
			_, err := tx.ExecContext(ctx, "savepoint "+name)
			return err
		},
		RollbackTo: func(ctx context.Context, tx *sql.Tx, name string) error {
			_, err := tx.ExecContext(ctx, "rollback to savepoint "+name)
			return err
		},
		InsertUndecodable: func(context.Context, storetest.Store[*sql.Tx], *sql.Tx, *postrider.Message) error {
			panic("no test of inboxes writes such rows")
		},
	}
}

func TestInboxOnDatabaseSQL(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"pgx", "postgres"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			storetest.Inbox(t, inboxFeatures, sqlHarness(dsn(t), driver))
		})
	}
}

func consumers(dsn string) inboxtest.Harness[pgx.Tx] {
	return inboxtest.Harness[pgx.Tx]{
		Open: func(t testing.TB) inboxtest.Store[pgx.Tx] {
			return setupWith(t, dsn, postgres.Config{Partitions: 4}, 40)
		},
		Histories: 4,
	}
}

func TestConsumers(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, consumers(dsn(t)))
}

func TestConsumersModel(t *testing.T) {
	t.Parallel()
	inboxtest.Model(t, consumers(dsn(t)))
}

func TestGuard(t *testing.T) {
	t.Parallel()
	storetest.Guard(t, inboxFeatures, harness(dsn(t)))
}
