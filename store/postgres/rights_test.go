package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// TestRightsOfRelaysAndConsumers: the rights listed in docs/sql-contract.md are enough.
func TestRightsOfRelaysAndConsumers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	owner := setup(t, postgres.Config{SegmentFor: time.Hour})
	schema := owner.config.Schema
	role := schema + "_relay"
	old := owner.past(t, 5, 0)
	owner.exec(t, "create role "+role)
	t.Cleanup(func() { owner.exec(t, "drop owned by "+role); owner.exec(t, "drop role "+role) })
	for _, right := range []string{"usage on schema %s", "select, insert, update, delete on all tables in schema %s",
		"usage, select, update on all sequences in schema %s"} {
		owner.exec(t, fmt.Sprintf("grant "+right+" to %s", schema, role))
	}
	config := owner.config
	pool := newPool(t, withParam(t, dsn(t), "role", role), 8)
	b := &bundle{Store: open(t, pool, config), pool: pool, config: config}

	o, err := outbox.New(b.Store, outbox.Config{Source: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	message := &postrider.Message{ID: "m", Type: "t", Key: "k", Payload: []byte("{}")}
	_, err = o.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := o.Publish(ctx, tx, message)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if n := b.deliverAll(t, "r", b.lease(t, "r")); n != 1 {
		t.Errorf("%d messages are delivered", n)
	}
	b.lease(t, "consumer")
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		return b.Park(ctx, tx, "consumer", []store.ParkRequest{{Message: message, Reason: store.ParkRetry, After: time.Minute}})
	})
	if err != nil {
		t.Errorf("park: %v", err)
	}
	// Retention needs more.
	owner.exec(t, fmt.Sprintf("grant create on schema %s to %s", schema, role))
	owner.exec(t, fmt.Sprintf(`do $$ declare part regclass; begin
		for part in select relid from pg_partition_tree('%s') loop execute format('alter table %%s owner to %s', part); end loop; end $$`,
		b.table("log"), role))
	b.drop(t, store.Retention{For: time.Hour}, old)
}
