package postgres_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// silentTx is a transaction whose connection dies without a word once a savepoint was made.
type silentTx struct {
	pgx.Tx
	made bool
}

func (tx *silentTx) Exec(ctx context.Context, _ string, _ ...any) (pgconn.CommandTag, error) {
	if !tx.made {
		tx.made = true
		return pgconn.CommandTag{}, nil
	}
	<-ctx.Done()
	return pgconn.CommandTag{}, ctx.Err()
}

// TestSavepointOverASilentConnection: a handler fails whose connection has died meanwhile. Its worker goes on.
func TestSavepointOverASilentConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wrong := errors.New("wrong")
		err := new(postgres.Store).Savepoint(t.Context(), &silentTx{}, func(context.Context, pgx.Tx) error { return wrong })
		if !errors.Is(err, wrong) || !errors.Is(err, store.ErrUndone) {
			t.Error(err)
		}
	})
}
