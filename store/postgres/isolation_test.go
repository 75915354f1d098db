package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/postgres"
)

// TestAcquireSeesWhatWasSettledMeanwhile: the last settlement of the owner before is in the way, on a database whose
// sessions are REPEATABLE READ.
func TestAcquireSeesWhatWasSettledMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 1})
	b.lease(t, "r")
	pool := newPool(t, withParam(t, dsn(t), "default_transaction_isolation", "repeatable read"), 2)
	s := open(t, pool, b.config)
	b.exec(t, "update "+b.table("leases")+" set lease_until = now() - interval '1 second'")
	tx := b.begin(t)
	for _, sql := range []string{"select 1 from " + b.table("leases") + " for no key update",
		fmt.Sprintf("with o as (delete from %[1]s returning *) insert into %[1]s (relay, partition, n, position, snapshot) select relay, partition, n+1, 777, snapshot from o", b.table("cursors"))} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	leases := whileLocked(t, b, tx, func() ([]relay.Lease, error) {
		return s.Acquire(context.WithoutCancel(t.Context()), "r", relay.Owner{ID: "b"}, []int{0}, time.Hour, relay.FromOldest)
	})
	if len(leases) != 1 || leases[0].Cursor.Position != 777 {
		t.Errorf("leases: %+v, want position 777", leases)
	}
	if v := one[string](t, pool, "show transaction_isolation"); v != "repeatable read" {
		t.Errorf("the session's transactions are %s afterwards", v)
	}
}
