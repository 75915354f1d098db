//go:build !race

package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// TestTransactionsOfAPartitionCountAtOnce: two transactions of parked messages of one partition, whose snapshots are older than
// each other's commit, on a database whose sessions are REPEATABLE READ. Maintenance adds up what they counted.
func TestTransactionsOfAPartitionCountAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 1})
	b.insertMessages(t, 3)
	lease := b.lease(t, "r")[0]
	sequences := one[[]int64](t, b.pool, "select array_agg(seq order by seq) from "+b.table("log"))
	parked := store.Settlement{Token: lease.Token, Number: 1}
	for _, seq := range sequences {
		parked.Parked = append(parked.Parked, store.ParkOutcome{Sequence: seq, FromLog: true, Reason: store.ParkDelayed, After: time.Hour})
	}
	if res, err := b.Settle(t.Context(), "r", []store.Settlement{parked}); err != nil || len(res.Lost)+len(res.Failed) > 0 {
		t.Fatalf("settled: %+v, %v", res, err)
	}
	s := open(t, newPool(t, withParam(t, dsn(t), "default_transaction_isolation", "repeatable read"), 4), b.config)
	var transactions []pgx.Tx
	for range sequences {
		tx, err := s.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := one[int](t, tx, "select count(*)::int4 from "+b.table("parked")); n != 3 {
			t.Fatalf("%d messages are parked, want 3", n)
		}
		transactions = append(transactions, tx)
	}
	for i, tx := range transactions {
		st := store.Settlement{Token: lease.Token, Removed: sequences[i : i+1], DeliveredCount: 1}
		if _, err := s.CommitSettled(t.Context(), tx, "r", st); err != nil {
			t.Errorf("commit with message %d: %v", sequences[i], err)
		}
		if i == 0 {
			continue
		}
		if _, err := s.Maintain(t.Context(), store.Retention{For: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if n := one[int](t, b.pool, "select count(*)::int4 from "+b.table("cursors")); n != 2 {
			t.Errorf("%d rows of cursors after maintenance, want the cursor and one count", n)
		}
		status, err := s.Status(t.Context())
		if err != nil || status.Relays[0].Delivered != int64(i+1) {
			t.Errorf("status: %+v, %v; want %d delivered", status.Relays, err, i+1)
		}
	}
}
