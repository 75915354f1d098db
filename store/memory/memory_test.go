package memory_test

import (
	"context"
	"errors"
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store/memory"
	"github.com/postrider/postrider/store/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, features, harness)
}

func TestModel(t *testing.T) {
	t.Parallel()
	storetest.Model(t, features, harness)
}

var (
	features = storetest.Features{Bubble: true, NoTables: true, Histories: modelHistories}
	harness  = storetest.Harness[*memory.Tx]{
		Open: func(_ testing.TB, partitions int) storetest.Store[*memory.Tx] {
			return memory.New(memory.Config{Partitions: partitions})
		},
		Reopen: func(_ testing.TB, s storetest.Store[*memory.Tx]) storetest.Store[*memory.Tx] {
			return s.(*memory.Store).Reopen()
		},
		Savepoint:  func(_ context.Context, tx *memory.Tx, name string) error { return tx.Savepoint(name) },
		RollbackTo: func(_ context.Context, tx *memory.Tx, name string) error { return tx.RollbackTo(name) },
		InsertUndecodable: func(ctx context.Context, s storetest.Store[*memory.Tx], tx *memory.Tx, m *postrider.Message) error {
			return s.(*memory.Store).InsertUndecodable(ctx, tx, m, errors.New("headers are not JSON"))
		},
	}
)
