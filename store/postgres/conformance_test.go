package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store/postgres"
	"github.com/postrider/postrider/store/storetest"
)

// coarse: the log is dropped by segments.
const coarse = "messages are dropped by segments, which span at least a minute"

func TestModel(t *testing.T) {
	t.Parallel()
	storetest.Model(t, storetest.Features{CoarseRetention: coarse}, harness(dsn(t)))
}

// contract runs every statement over another connection path to the server, and all tests of some groups.
func contract(t *testing.T, dsn string, config postgres.Config, whole ...string) {
	storetest.Contract(t, again, harnessWith(dsn, config), whole...)
}

func harness(dsn string) storetest.Harness[pgx.Tx] { return harnessWith(dsn, postgres.Config{}) }

func harnessWith(dsn string, config postgres.Config) storetest.Harness[pgx.Tx] {
	return storetest.Harness[pgx.Tx]{
		Open: func(t testing.TB, partitions int) storetest.Store[pgx.Tx] {
			config := config
			config.Partitions = partitions
			return cloned(t, dsn, config, 16)
		},
		Reopen: func(t testing.TB, s storetest.Store[pgx.Tx]) storetest.Store[pgx.Tx] {
			b := s.(*bundle)
			pool := newPool(t, b.dsn, 16)
			return &bundle{Store: open(t, pool, b.config), pool: pool, dsn: b.dsn, config: b.config}
		},
		Savepoint: func(ctx context.Context, tx pgx.Tx, name string) error {
			_, err := tx.Exec(ctx, "savepoint "+name)
			return err
		},
		RollbackTo: func(ctx context.Context, tx pgx.Tx, name string) error {
			_, err := tx.Exec(ctx, "rollback to savepoint "+name)
			return err
		},
		InsertUndecodable: func(ctx context.Context, s storetest.Store[pgx.Tx], tx pgx.Tx, m *postrider.Message) error {
			b := s.(*bundle)
			n, err := b.Partitions(ctx)
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, fmt.Sprintf(`insert into %s (partition, id, topic, key, type, headers)
				values ($1::int4, $2::text, $3::text, $4::text, $5::text, '{"a": {"b": 1}}')`, b.table("log")),
				postrider.PartitionOf(m.Key, m.ID, n), m.ID, m.Topic, m.Key, m.Type)
			return err
		},
	}
}
