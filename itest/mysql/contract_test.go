package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/postrider/postrider"
	mysqlstore "github.com/postrider/postrider/store/mysql"
	"github.com/postrider/postrider/store/storetest"
)

// opened is a store that knows its database.
type opened struct {
	*mysqlstore.Store
	database database
}

func TestModel(t *testing.T) {
	t.Parallel()
	storetest.Model(t, features, harness)
}

var features = storetest.Features{Histories: 4}

var harness = storetest.Harness[*sql.Tx]{
	Open: func(t testing.TB, partitions int) storetest.Store[*sql.Tx] {
		d, db := shared.clone(t, server(t), partitions)
		return opened{newStore(t, db, mysqlstore.Config{}), d}
	},
	Reopen: func(t testing.TB, s storetest.Store[*sql.Tx]) storetest.Store[*sql.Tx] {
		d := s.(opened).database
		return opened{newStore(t, d.open(t, nil), mysqlstore.Config{}), d}
	},
	Savepoint:  statement("SAVEPOINT %s"),
	RollbackTo: statement("ROLLBACK TO SAVEPOINT %s"),
	InsertUndecodable: func(ctx context.Context, s storetest.Store[*sql.Tx], tx *sql.Tx, m *postrider.Message) error {
		if err := s.Insert(ctx, tx, []*postrider.Message{m}); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `UPDATE postrider_log SET headers = '{"a": ' WHERE id = ?`, m.ID)
		return err
	},
}

func statement(format string) func(context.Context, *sql.Tx, string) error {
	return func(ctx context.Context, tx *sql.Tx, name string) error {
		_, err := tx.ExecContext(ctx, fmt.Sprintf(format, name))
		return err
	}
}
