package inboxes_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/bench/internal/inboxes"
	"github.com/postrider/postrider/internal/servertest"
)

// TestWays runs every way once.
func TestWays(t *testing.T) { //nolint:tparallel // the ways use the same tables
	t.Parallel()
	cfg, err := pgxpool.ParseConfig(servertest.Get(t, servertest.Postgres))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for i := range inboxes.Ways {
		w := &inboxes.Ways[i]
		t.Run(w.Name, func(t *testing.T) {
			if rate, err := w.Run(t.Context(), pool, 200); err != nil || rate <= 0 {
				t.Errorf("%v messages a second, %v", rate, err)
			}
		})
	}
}
