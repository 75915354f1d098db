package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/postgres"
)

// TestSettlementDoesNotWaitForTheDisk looks at the setting that is in force when a settlement commits, whichever way it
// takes.
func TestSettlementDoesNotWaitForTheDisk(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 1})
	leases := b.lease(t, "r")
	b.exec(t, fmt.Sprintf(`create table %[1]s.seen (setting text);
create function %[1]s.see() returns trigger language plpgsql as $$ begin
	insert into %[1]s.seen values (current_setting('synchronous_commit'));
	return null;
end $$;
create constraint trigger see after insert on %[2]s deferrable initially deferred for each row execute function %[1]s.see()`,
		b.config.Schema, b.table("cursors")), pgx.QueryExecModeSimpleProtocol)
	for name, st := range map[string]relay.Settlement{
		"only cursors":   {Epoch: leases[0].Epoch, DeliveredCount: 1},
		"with held keys": {Epoch: leases[0].Epoch, Held: []relay.HeldKey{{Key: "k", Sequence: 1, Reason: relay.ParkRetry, After: time.Hour}}},
	} {
		if _, err := b.Settle(t.Context(), "r", relay.Owner{ID: leases[0].Owner}, []relay.Settlement{st}); err != nil {
			t.Fatal(err)
		}
		if v := one[string](t, b.pool, "delete from "+b.config.Schema+".seen returning setting"); v != "off" {
			t.Errorf("%s: committed with synchronous_commit %s", name, v)
		}
		if v := one[string](t, b.pool, "show synchronous_commit"); v != "on" {
			t.Errorf("%s: synchronous_commit is %s afterwards", name, v)
		}
	}
}
