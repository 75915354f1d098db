//go:build !race

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// parkedRowsSQL parks messages of relay r that are due: %s is the table, $1 the partitions, $2 how many, $3 seconds before 2026. They are
// due in another order than that of their rows, so that each index entry leads to another page.
const parkedRowsSQL = `insert into %s (relay, partition, seq, id, topic, key, type, source, subject, tenant, message_time, schema_version,
	aggregate_version, content_type, headers, correlation_id, causation_id, payload, created_at, reason, due_at, attempts, parked_at)
select 'r', i %% $1::int4, i, 'm-' || i, 't', '', 't', 's', '', '', now(), 0, 0, '', '{}', '', '', '', now(), 'retry',
	timestamptz '2026-01-01 00:00Z' - $3::int4 * interval '1 second' + i * 7919 %% 4001 * interval '1 millisecond', 1, now()
from generate_series(1, $2::int4) as i`

// heldRowsSQL does so with held keys.
const heldRowsSQL = `insert into %s (relay, key, partition, seq, reason, cause, attempts, since, next_attempt_at)
select 'r', 'key ' || i, i %% $1::int4, i, 'retry', '', 1, now(),
	timestamptz '2026-01-01 00:00Z' - $3::int4 * interval '1 second' + i * 7919 %% 4001 * interval '1 millisecond'
from generate_series(1, $2::int4) as i`

// TestDueDoesNotPassOverWhatWasRemoved: while a transaction is left open, the index entries of removed rows stay. Reading what is due
// must not look up those that were removed before the last read.
func TestDueDoesNotPassOverWhatWasRemoved(t *testing.T) {
	t.Parallel()
	b, ctx := setup(t, postgres.Config{Partitions: 2}), t.Context()
	leases := b.lease(t, "r")
	const n, left = 4_000, 100
	b.exec(t, fmt.Sprintf(parkedRowsSQL, b.table("parked")), 2, n, 3600)
	b.exec(t, fmt.Sprintf(heldRowsSQL, b.table("held")), 2, n, 3600)
	b.exec(t, "analyze "+b.table("parked")+", "+b.table("held"))
	reader, err := b.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	must(t, err)
	t.Cleanup(func() { _ = reader.Rollback(ctx) })
	_, err = reader.Exec(ctx, "select count(*) from "+b.table("parked"))
	must(t, err)
	for table, due := range map[string]string{"parked": "due_at", "held": "next_attempt_at"} {
		b.exec(t, fmt.Sprintf("delete from %[1]s where seq in (select seq from %[1]s order by %[2]s limit $1)", b.table(table), due), n-left)
	}

	req := store.DueRequest{Leases: []store.LeaseRef{leases[0].Ref(), leases[1].Ref()}, Runs: 4, RunLength: 10, MaxBytes: 1 << 20}
	plan, err := b.ExplainDue(ctx, "r", req)
	must(t, err)
	all := buffers(t, plan)
	first, err := b.Due(ctx, "r", req)
	must(t, err)
	if len(first.Runs) != 4 || first.From.IsZero() {
		t.Fatalf("%d runs, from %s", len(first.Runs), first.From)
	}
	req.From = first.From
	plan, err = b.ExplainDue(ctx, "r", req)
	must(t, err)
	if further := buffers(t, plan); all < n || further > 200 {
		t.Errorf("the first read touched %d pages, want one for each of %d removed rows; the second %d, want few:\n%s", all, n, further, plan)
	}
	second, err := b.Due(ctx, "r", req)
	must(t, err)
	if got, want := dueRuns(second), dueRuns(first); got != want || !second.From.Equal(first.From) {
		t.Errorf("due %s from %s, want %s from %s", got, second.From, want, first.From)
	}
}

// dueRuns returns what is due.
func dueRuns(res store.DueResult) (text string) {
	for _, run := range res.Runs {
		text += fmt.Sprintf("%d/%s", run.Partition, run.Key)
		for _, e := range run.Entries {
			text += " " + e.Message.ID
		}
		text += ", "
	}
	return text
}

// TestDueBeforeTheLastRead: messages that become visible before the place where a relay reads on, e.g. because they were written by hand,
// are delivered too.
func TestDueBeforeTheLastRead(t *testing.T) {
	t.Parallel()
	b := setup(t, postgres.Config{Partitions: 2})
	park := fmt.Sprintf(parkedRowsSQL, b.table("parked"))
	r, err := relay.New(b, relay.Config{Name: "r", LeaseTTL: longTTL, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	const n = 200
	delivered := make(chan string, 2*n)
	must(t, r.HandleFunc("t", func(_ context.Context, m *postrider.Message) error {
		delivered <- m.ID
		return nil
	}))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(context.Background()) }()
	t.Cleanup(func() { must(t, errors.Join(r.Stop(context.Background()), <-ended)) })
	deadline, got := time.After(patience), make(map[string]bool)
	for _, seconds := range []int{3600, 7200} { // the later ones are due earlier
		b.exec(t, park, 2, n, seconds)
		for len(got) < n {
			select {
			case id := <-delivered:
				got[id] = true
			case <-deadline:
				t.Fatalf("%d of %d messages that were due %d seconds before 2026 are delivered", len(got), n, seconds)
			}
		}
		b.until(t, "select count(*) = 0 from "+b.table("parked"))
		clear(got)
	}
}
