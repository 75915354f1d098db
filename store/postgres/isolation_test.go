//go:build !race

package postgres_test

import (
	"fmt"
	"testing"

	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// TestAcquireSeesWhatWasSettledMeanwhile: the last settlement of the previous owner is in progress, on a database whose sessions
// are REPEATABLE READ.
func TestAcquireSeesWhatWasSettledMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 1})
	b.lease(t, "r")
	pool := newPool(t, withParam(t, dsn(t), "default_transaction_isolation", "repeatable read"), 2)
	s := open(t, pool, b.config)
	b.exec(t, "update "+b.table("relays")+" set alive_until = now() - interval '1 second'")
	tx := b.begin(t)
	for _, sql := range []string{"select 1 from " + b.table("leases") + " for key share",
		fmt.Sprintf("with o as (delete from %[1]s returning *) insert into %[1]s (relay, partition, n, position, snapshot) select relay, partition, n+1, 777, snapshot from o", b.table("cursors"))} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	req := acquire(0)
	if leases, err := s.Acquire(t.Context(), "r", store.Owner{ID: "b"}, req); len(leases) > 0 || err != nil {
		t.Errorf("leased while a settlement is under way: %+v, %v", leases, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	leases, err := s.Acquire(t.Context(), "r", store.Owner{ID: "b"}, req)
	if err != nil {
		t.Fatal(err)
	}
	if len(leases) != 1 || leases[0].Cursor.Position != 777 {
		t.Errorf("leases: %+v, want position 777", leases)
	}
	if v := one[string](t, pool, "show transaction_isolation"); v != "repeatable read" {
		t.Errorf("the session's transactions are %s afterwards", v)
	}
}
